//! Environments: list, create, read, change, delete, and what deleting would touch.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use leasehold_authority::{
    Environment, EnvironmentDraft, EnvironmentDriver, EnvironmentFilter, EnvironmentPatch,
    EnvironmentStatus, Scope, SecretRef, Selector, View,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::capabilities::WithheldView;
use super::errors::{ApiError, ErrorCode};
use super::pages::{self, PageQuery, Place};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;
use crate::service::{Precondition, Service, entity_tag};

/// An environment. Who does not manage the server sees `config` and `envVars` empty and no metadata.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Environment)]
pub struct EnvironmentView<'a> {
    /// `env_…`
    id: &'a str,
    /// Whose it is; none where all companies share it.
    company_id: Option<&'a str>,
    /// Unique in what any company sees.
    name: &'a str,
    description: Option<&'a str>,
    /// `ssh`, `sandbox` or `plugin`; `local` is the server's own machine, which is never leased
    driver: &'static str,
    /// The provider's key.
    provider: &'a str,
    /// `active` or `archived`
    status: &'static str,
    /// By the provider's schema; secrets are references, never values.
    #[schema(value_type = Object)]
    config: Shown<'a>,
    /// Each a string or a reference to a secret.
    #[schema(value_type = Object)]
    env_vars: Shown<'a>,
    /// What the client put there.
    #[schema(value_type = Option<Object>)]
    metadata: Option<&'a Map<String, Value>>,
    /// What people must know who lease it, each a sentence: that its container engine is root on this machine.
    warnings: Vec<String>,
    /// Why its provider makes nothing new now: nothing can be leased here until it does. What is leased goes on.
    withheld: Option<WithheldView>,
    /// Whether the server made it from its settings: only `envVars` can be changed.
    managed: bool,
    /// Rises with every change.
    revision: i64,
    /// Rises with every change of what is leased, and with no other.
    target_revision: i64,
    created_at: Time,
    updated_at: Time,
}

/// An object as it is stored, or `{}` in its place.
#[derive(Debug)]
struct Shown<'a>(Option<&'a Map<String, Value>>);

impl Serialize for Shown<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(map) => map.serialize(serializer),
            None => Map::new().serialize(serializer),
        }
    }
}

impl<'a> EnvironmentView<'a> {
    /// As a caller sees it; `whole` for those who manage.
    pub fn of(row: &'a Environment, whole: bool, service: &Service) -> EnvironmentView<'a> {
        EnvironmentView {
            id: &row.id,
            company_id: row.company_id.as_deref(),
            name: &row.name,
            description: row.description.as_deref(),
            driver: row.driver.as_str(),
            provider: &row.provider,
            status: row.status.as_str(),
            config: Shown(whole.then_some(&row.config)),
            env_vars: Shown(whole.then_some(&row.env_vars)),
            metadata: row.metadata.as_ref().filter(|_| whole),
            warnings: service.warnings(&row.config, &row.endpoints),
            withheld: service.withheld(row).map(Into::into),
            managed: row.managed,
            revision: row.revision,
            target_revision: row.target_revision,
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// An environment as it is created or probed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = EnvironmentDraft)]
pub struct EnvironmentDraftBody {
    /// 1 to 100 characters, unique in what any company sees. A draft that is only probed needs none.
    #[serde(default)]
    name: String,
    /// Whose it shall be: the company of the path, or `null`: shared by all companies. A draft that is only probed is
    /// probed for the company of the path.
    #[serde(default, deserialize_with = "told")]
    #[schema(value_type = Option<String>)]
    company_id: Option<Option<String>>,
    description: Option<String>,
    /// `ssh`, `sandbox` or `plugin`
    driver: String,
    /// The provider's key; without one, the driver's own name.
    provider: Option<String>,
    /// By the provider's schema. A secret is `{"type": "secret_ref", "secretId": "sec_…", "version": "latest"}` (or a
    /// number), or `{"type": "secret_value", "value": "…", "name": "…", "purpose": "key"}`, which is kept as a secret of
    /// the company together with the environment, or not at all. Its name and purpose may be left out.
    #[serde(default)]
    #[schema(value_type = Object)]
    config: Map<String, Value>,
    /// Variables of every command; each a string, or a secret as in `config`.
    #[serde(default)]
    #[schema(value_type = Object)]
    env_vars: Map<String, Value>,
    /// Yours to use; the server reads nothing from it.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// `active` (which is the default) or `archived`
    status: Option<String>,
}

impl EnvironmentDraftBody {
    /// Whether all companies shall share it, as what is sent to this company's path says.
    fn shared(&self, company: &str) -> Result<bool, ApiError> {
        match &self.company_id {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(named)) if named == company => Ok(false),
            Some(Some(_)) => Err(ApiError::field(
                "/companyId",
                "is another company than the path's; leave it out, or give null for one that all companies share",
            )),
        }
    }
}

impl TryFrom<EnvironmentDraftBody> for EnvironmentDraft {
    type Error = ApiError;

    fn try_from(body: EnvironmentDraftBody) -> Result<EnvironmentDraft, ApiError> {
        let driver = driver(&body.driver)?;
        Ok(EnvironmentDraft {
            name: body.name,
            description: body.description,
            driver,
            provider: body.provider.unwrap_or_else(|| driver.as_str().to_owned()),
            config: body.config,
            env_vars: body.env_vars,
            metadata: body.metadata,
            status: match body.status.as_deref() {
                None => EnvironmentStatus::Active,
                Some(text) => status(text)?,
            },
        })
    }
}

fn driver(text: &str) -> Result<EnvironmentDriver, ApiError> {
    EnvironmentDriver::parse(text).ok_or_else(|| one_of("/driver", text, DRIVERS))
}

fn status(text: &str) -> Result<EnvironmentStatus, ApiError> {
    EnvironmentStatus::parse(text).ok_or_else(|| one_of("/status", text, STATUSES))
}

const DRIVERS: &[&str] = &["local", "ssh", "sandbox", "plugin"];
const STATUSES: &[&str] = &["active", "archived"];

/// A change of an environment; what is left out stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = EnvironmentPatch)]
pub struct EnvironmentPatchBody {
    /// Another company whose own it is to be; `null` makes it one that all companies share.
    #[serde(default, deserialize_with = "told")]
    #[schema(value_type = Option<String>)]
    company_id: Option<Option<String>>,
    name: Option<String>,
    /// `null` removes it.
    #[serde(default, deserialize_with = "told")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// A change resets the configuration to what is given with it.
    driver: Option<String>,
    /// A change resets the configuration to what is given with it.
    provider: Option<String>,
    /// Merged into the stored configuration key by key, one level deep; `null` removes a key.
    #[schema(value_type = Option<Object>)]
    config: Option<Map<String, Value>>,
    /// Merged into the stored variables by name; `null` removes one.
    #[schema(value_type = Option<Object>)]
    env_vars: Option<Map<String, Value>>,
    /// Replaces the metadata; `null` removes it.
    #[serde(default, deserialize_with = "told")]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Option<Map<String, Value>>>,
    /// `active` or `archived`
    status: Option<String>,
}

/// Tells a field that is `null` from one that is not there.
pub fn told<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

impl TryFrom<EnvironmentPatchBody> for EnvironmentPatch {
    type Error = ApiError;

    fn try_from(body: EnvironmentPatchBody) -> Result<EnvironmentPatch, ApiError> {
        Ok(EnvironmentPatch {
            company_id: body.company_id,
            name: body.name,
            description: body.description,
            driver: body.driver.as_deref().map(driver).transpose()?,
            provider: body.provider,
            config: body.config,
            env_vars: body.env_vars,
            metadata: body.metadata,
            status: body.status.as_deref().map(status).transpose()?,
        })
    }
}

/// Which environments.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct EnvironmentQuery {
    /// `active` or `archived`
    status: Option<String>,
    /// `local`, `ssh`, `sandbox` or `plugin`
    driver: Option<String>,
    /// A provider's key.
    provider: Option<String>,
    /// From the `Link` header of the page before.
    cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    limit: Option<u32>,
}

/// A place of an environment where a secret is used.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SecretRef)]
pub struct SecretRefView {
    secret_id: String,
    /// The secret's name.
    name: String,
    /// RFC 6901 pointer into the configuration, or `env:NAME`.
    config_path: String,
    /// `latest`, or a number that is pinned.
    selector: String,
    /// The version that is used now.
    version: i64,
}

/// The places of an environment where secrets are used.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRefs {
    refs: Vec<SecretRefView>,
}

impl From<SecretRef> for SecretRefView {
    fn from(row: SecretRef) -> SecretRefView {
        SecretRefView {
            secret_id: row.secret_id,
            name: row.name,
            config_path: row.pointer,
            selector: match row.selector {
                Selector::Latest => "latest".into(),
                Selector::Version(number) => number.to_string(),
            },
            version: row.version,
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, update))
        .routes(routes!(secret_refs))
}

/// The row, if the caller may know of it, and how much of it.
async fn seen(app: &App, caller: &Caller, id: &str) -> Result<(Environment, View), ApiError> {
    let row = app.service()?.authority().environments().get(id).await?;
    let view = caller.sees(Scope::of(row.company_id.as_deref()), "environment", id)?;
    Ok((row, view))
}

fn filter(query: &EnvironmentQuery) -> Result<EnvironmentFilter, ApiError> {
    super::ids::check_filter("provider", query.provider.as_deref())?;
    let status = query.status.as_deref().map(|text| {
        EnvironmentStatus::parse(text).ok_or_else(|| one_of("?status", text, STATUSES))
    });
    let driver = query
        .driver
        .as_deref()
        .map(|text| EnvironmentDriver::parse(text).ok_or_else(|| one_of("?driver", text, DRIVERS)));
    Ok(EnvironmentFilter {
        status: status.transpose()?,
        driver: driver.transpose()?,
        provider: query.provider.clone(),
    })
}

/// A value that is none of those there are. `pointer` is into the body, or `?name` of the query.
pub fn one_of(pointer: &str, found: &str, known: &[&str]) -> ApiError {
    ApiError::field(
        pointer,
        format!(
            "`{}` is not known; it is one of {}",
            super::errors::shown(found),
            known.join(", ")
        ),
    )
}

/// List the environments that a company sees
///
/// Its own, and those that all companies share.
#[utoipa::path(get, path = "/api/companies/{companyId}/environments", operation_id = "listEnvironments", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id"), EnvironmentQuery),
    responses((status = 200, description = "A page of environments, by name", body = Vec<EnvironmentView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    place: Place,
    Query(query): Query<EnvironmentQuery>,
) -> Result<axum::response::Response, ApiError> {
    let whole = caller.sees_company(&company)? == View::Whole;
    let filter = filter(&query)?;
    let service = app.service()?;
    let rows = service
        .authority()
        .environments()
        .list(&company, &filter)
        .await?;
    let asked = PageQuery {
        cursor: query.cursor,
        limit: query.limit,
    };
    let page = pages::of(rows.iter().collect(), &asked, |row| row.name.clone())?;
    let views: Vec<_> = page
        .items
        .into_iter()
        .map(|row| EnvironmentView::of(row, whole, service))
        .collect();
    Ok(place.answer(views, page.next.as_deref()))
}

/// Create an environment
///
/// Of the company, or with `companyId: null` shared by all. The configuration is checked by the provider's schema and by
/// the provider; no target is reached.
#[utoipa::path(post, path = "/api/companies/{companyId}/environments", operation_id = "createEnvironment", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id")),
    request_body = EnvironmentDraftBody,
    responses((status = 201, description = "The environment", body = EnvironmentView)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Json(body): Json<EnvironmentDraftBody>,
) -> Result<axum::response::Response, ApiError> {
    let service = app.service()?;
    let shared = body.shared(&company)?;
    let row = service
        .create_environment(&caller, &company, shared, body.try_into()?)
        .await?;
    Ok(view(StatusCode::CREATED, &row, service))
}

fn view(status: StatusCode, row: &Environment, service: &Service) -> axum::response::Response {
    axum::response::IntoResponse::into_response((
        status,
        tag(row),
        axum::Json(EnvironmentView::of(row, true, service)),
    ))
}

/// The entity tag of a row, as a header.
fn tag(row: &Environment) -> [(axum::http::HeaderName, String); 1] {
    [(header::ETAG, entity_tag(row))]
}

/// What `If-Match` asks for.
fn precondition(headers: &HeaderMap) -> Result<Precondition, ApiError> {
    let lines: Result<Vec<&str>, _> = headers
        .get_all(header::IF_MATCH)
        .iter()
        .map(|line| line.to_str())
        .collect();
    let read = lines
        .map_err(|_| "is not text")
        .and_then(|lines| Precondition::parse(&lines));
    read.map_err(|why| {
        ApiError::new(
            ErrorCode::BadRequest,
            format!("the If-Match header {why}; send the ETag of the environment as it was read"),
        )
    })
}

/// Get an environment
#[utoipa::path(get, path = "/api/environments/{environmentId}", operation_id = "getEnvironment", tag = "environments",
    params(("environmentId" = String, Path, description = "The environment's id")),
    responses((status = 200, description = "The environment", body = EnvironmentView,
        headers(("ETag" = String, description = "Changes with every change of the environment")))))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::response::Response, ApiError> {
    let (row, view) = seen(&app, &caller, &id).await?;
    let service = app.service()?;
    let view = EnvironmentView::of(&row, view == View::Whole, service);
    Ok(axum::response::IntoResponse::into_response((
        tag(&row),
        axum::Json(view),
    )))
}

/// Change an environment
///
/// Leases that exist are released by what they were acquired with, not by this. Without `If-Match` it is laid over whatever
/// is there; with it, it is made of what was read or not at all (412).
#[utoipa::path(patch, path = "/api/environments/{environmentId}", operation_id = "updateEnvironment", tag = "environments",
    params(("environmentId" = String, Path, description = "The environment's id"),
        ("If-Match" = Option<String>, Header, description = "The `ETag` of the environment as it was read; or its `revision` in quotes; or `*`")),
    request_body = EnvironmentPatchBody,
    responses((status = 200, description = "The environment", body = EnvironmentView,
        headers(("ETag" = String, description = "Changes with every change of the environment")))))]
async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    Json(body): Json<EnvironmentPatchBody>,
) -> Result<axum::response::Response, ApiError> {
    let service = app.service()?;
    let expected = precondition(&headers)?;
    let row = service
        .update_environment(&caller, &id, body.try_into()?, &expected)
        .await?;
    Ok(view(StatusCode::OK, &row, service))
}

/// List where an environment uses secrets
#[utoipa::path(get, path = "/api/environments/{environmentId}/secret-refs", operation_id = "listSecretRefs", tag = "environments",
    params(("environmentId" = String, Path, description = "The environment's id")),
    responses((status = 200, description = "The places, never values", body = SecretRefs)))]
async fn secret_refs(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<SecretRefs>, ApiError> {
    caller.sees_all()?;
    let rows = app
        .service()?
        .authority()
        .environments()
        .secret_refs(&id)
        .await?;
    let refs = rows.into_iter().map(Into::into).collect();
    Ok(axum::Json(SecretRefs { refs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<EnvironmentFilter, ApiError> {
        let uri: axum::http::Uri = format!("/x?{text}").parse().unwrap();
        let query = axum::extract::Query::<EnvironmentQuery>::try_from_uri(&uri).unwrap();
        filter(&query.0)
    }

    #[test]
    fn a_status_or_driver_that_does_not_exist_is_refused_with_those_that_do() {
        assert!(query("status=active&driver=ssh").is_ok());
        let error = query("status=bogus").unwrap_err();
        assert_eq!(error.code.status().as_u16(), 400);
        assert!(error.message.contains("active, archived"), "{error}");
        assert!(
            query("driver=bogus")
                .unwrap_err()
                .message
                .contains("sandbox")
        );
    }

    #[test]
    fn a_description_can_be_removed_and_left_alone() {
        let patch: EnvironmentPatchBody = serde_json::from_str("{}").unwrap();
        assert_eq!(patch.description, None);
        let patch: EnvironmentPatchBody = serde_json::from_str(r#"{"description":null}"#).unwrap();
        assert_eq!(patch.description, Some(None));
        assert_eq!(patch.metadata, None);
    }
}
