//! How the API writes moments: RFC 3339 in UTC, with milliseconds.

use std::fmt;

use serde::{Serialize, Serializer};

/// A moment of the database: milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub i64);

impl Time {
    /// The moment that the text says, if it says one.
    pub fn parse(text: &str) -> Option<Time> {
        let moment: jiff::Timestamp = text.parse().ok()?;
        Some(Time(moment.as_millisecond()))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => f.write_str("0000-00-00T00:00:00Z"),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<i64> for Time {
    fn from(milliseconds: i64) -> Time {
        Time(milliseconds)
    }
}

impl utoipa::PartialSchema for Time {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(
                utoipa::openapi::KnownFormat::DateTime,
            )))
            .description(Some("RFC 3339, in UTC"))
            .into()
    }
}

impl utoipa::ToSchema for Time {
    fn name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn moments_are_written_as_rfc_3339_in_utc() {
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Time(1_764_423_304_120).to_string(),
            "2025-11-29T13:35:04.120Z"
        );
        assert_eq!(
            Time::parse("2025-11-29T13:35:04.12Z"),
            Some(Time(1_764_423_304_120))
        );
        assert_eq!(Time::parse("tomorrow"), None);
    }
}
