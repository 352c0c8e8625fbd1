//! Pages of lists: every list takes `limit` and `cursor`, and tells by a `Link` header (RFC 8288) where it goes on.
//!
//! A cursor is the key of the last thing that was answered, and opaque: what comes after it comes on the next page, whatever
//! was added or removed meanwhile. Lists whose body is an array stay arrays; those that name the next page in their body
//! do it by the header, too.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::errors::ApiError;

/// Things on a page where nobody says how many.
const USUAL: u32 = 100;
/// Things on a page at most.
const MOST: u32 = 500;

/// Which page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// From the `Link` header of the page before.
    pub cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    pub limit: Option<u32>,
}

/// Where a request went: what the next page's address is made of.
pub struct Place(Uri);

impl<S: Send + Sync> FromRequestParts<S> for Place {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Place(parts.uri.clone()))
    }
}

/// The page of a list that a request asks for.
#[derive(Debug)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// The cursor of the next; none at the end.
    pub next: Option<String>,
}

/// How many things a page may have.
///
/// # Errors
/// 400 for a number that is none.
pub fn limit(limit: Option<u32>) -> Result<u32, ApiError> {
    match limit {
        None => Ok(USUAL),
        Some(limit @ 1..=MOST) => Ok(limit),
        Some(other) => Err(ApiError::field(
            "?limit",
            format!("is {other}; it is a number from 1 to {MOST}"),
        )),
    }
}

/// What a cursor says.
///
/// # Errors
/// 400 for what is none.
pub fn read(cursor: &str) -> Result<String, ApiError> {
    let bytes: Option<Vec<u8>> = cursor
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
            _ => None,
        })
        .collect();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| ApiError::field("?cursor", "must be the cursor of an earlier page"))
}

/// The cursor behind the thing of this key.
pub fn cursor(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A hexadecimal digit's value: cursors have no letter case that could be lost on the way.
fn digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

/// The page of a list that is there whole. `key` is unique and in the list's order.
///
/// # Errors
/// 400 for a limit or a cursor that is none.
pub fn of<T>(
    mut rows: Vec<T>,
    query: &PageQuery,
    key: impl Fn(&T) -> String,
) -> Result<Page<T>, ApiError> {
    let limit = limit(query.limit)? as usize;
    if let Some(text) = &query.cursor {
        let after = read(text)?;
        rows.sort_by_cached_key(&key);
        let behind = rows.partition_point(|row| key(row) <= after);
        rows.drain(..behind);
    } else if rows.len() > limit {
        rows.sort_by_cached_key(&key);
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor(&key(row)));
    Ok(Page { items: rows, next })
}

impl Place {
    /// An answer, with the address of the next page where there is one.
    pub fn answer(&self, body: impl Serialize, next: Option<&str>) -> Response {
        self.answer_from(body, "cursor", next)
    }

    /// The same of a list whose next page is asked for by another parameter.
    pub fn answer_from(
        &self,
        body: impl Serialize,
        parameter: &str,
        next: Option<&str>,
    ) -> Response {
        let mut response = axum::Json(body).into_response();
        if let Some(link) = next.and_then(|next| self.link(parameter, next)) {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }

    /// `rel="next"`: this very request, with another value of the parameter that says from where.
    fn link(&self, parameter: &str, next: &str) -> Option<HeaderValue> {
        let own = format!("{parameter}=");
        let query = self.0.query().unwrap_or_default().split('&');
        let mut kept: Vec<&str> = query
            .filter(|part| !part.is_empty() && !part.starts_with(&own))
            .collect();
        let next = format!("{own}{}", encoded(next));
        kept.push(&next);
        let link = format!("<{}?{}>; rel=\"next\"", self.0.path(), kept.join("&"));
        HeaderValue::from_str(&link).ok()
    }
}

/// A text as it stands in a query: cursors of some lists hold what a client chose itself.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &[&'static str], cursor: Option<String>, limit: u32) -> Page<&'static str> {
        let query = PageQuery {
            cursor,
            limit: Some(limit),
        };
        of(rows.to_vec(), &query, |row| (*row).to_owned()).unwrap()
    }

    #[test]
    fn pages_follow_each_other_whatever_came_and_went_between() {
        let first = page(&["a", "b", "c", "d"], None, 2);
        assert_eq!(first.items, ["a", "b"]);
        // What the cursor names has gone, and something came before and after it.
        let second = page(&["a", "aa", "c", "d", "e"], first.next, 2);
        assert_eq!(second.items, ["c", "d"]);
        let third = page(&["c", "d", "e"], second.next, 2);
        assert_eq!((third.items, third.next), (vec!["e"], None));
        assert_eq!(page(&["a", "b"], None, 2).next, None);
        // In the order of the keys, in which the cursor counts, from the first page on.
        assert_eq!(page(&["c", "a", "b"], None, 2).items, ["a", "b"]);
    }

    #[test]
    fn a_cursor_or_a_limit_that_is_none_is_refused() {
        for (cursor, limit) in [
            (Some("*"), None),
            (Some("6"), None),
            (Some("ff"), None),
            (None, Some(0)),
            (None, Some(501)),
        ] {
            let query = PageQuery {
                cursor: cursor.map(str::to_owned),
                limit,
            };
            let error = of(vec!["a"], &query, |row| (*row).to_owned()).unwrap_err();
            assert_eq!(error.code.status().as_u16(), 400, "{cursor:?} {limit:?}");
        }
    }

    #[test]
    fn the_next_page_is_the_same_request_with_another_cursor() {
        let place = Place("/api/x?a=1&cursor=old&limit=2".parse().unwrap());
        let link = place.link("cursor", "bmV3").unwrap();
        assert_eq!(link, "</api/x?a=1&limit=2&cursor=bmV3>; rel=\"next\"");
        let chosen = place.link("cursor", "7.a b&c>é").unwrap();
        assert_eq!(
            chosen,
            "</api/x?a=1&limit=2&cursor=7.a%20b%26c%3E%C3%A9>; rel=\"next\""
        );
    }
}
