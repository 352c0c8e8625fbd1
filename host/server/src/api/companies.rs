//! Companies: who owns environments, secrets and leases.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use leasehold_authority::{Company, Entry};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::ApiError;
use super::pages::{self, PageQuery, Place};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// A company.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Company)]
pub struct CompanyView {
    /// `com_…`
    id: String,
    /// Unique on this server.
    name: String,
    created_at: Time,
    updated_at: Time,
}

impl From<Company> for CompanyView {
    fn from(row: Company) -> CompanyView {
        CompanyView {
            id: row.id,
            name: row.name,
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// A company's name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "name": "subsidiary" }))]
pub struct CompanyName {
    /// 1 to 100 characters, unique on this server.
    name: String,
}

/// Of what is exported.
const FORMAT: u32 = 1;

/// A company for another server. No environment, no secret and nothing that was measured of a machine is ever in it: those
/// are true where they were made alone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CompanyExport)]
pub struct ExportView {
    /// Rises when what is exported changes its shape.
    format: u32,
    company: CompanyView,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, rename))
        .routes(routes!(export))
}

/// List companies
///
/// The local operator and administrators see all, others their own.
#[utoipa::path(get, path = "/api/companies", operation_id = "listCompanies", tag = "companies",
    params(PageQuery),
    responses((status = 200, description = "A page of companies, by name", body = Vec<CompanyView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    Query(query): Query<PageQuery>,
) -> Result<Response, ApiError> {
    let companies = app.service()?.authority().companies();
    let mut rows = companies.list().await?;
    if let Some(own) = caller.companies() {
        rows.retain(|row| own.contains(&row.id.as_str()));
    }
    let page = pages::of(rows, &query, |row| row.name.clone())?;
    let views: Vec<CompanyView> = page.items.into_iter().map(Into::into).collect();
    Ok(place.answer(views, page.next.as_deref()))
}

/// Create a company
#[utoipa::path(post, path = "/api/companies", operation_id = "createCompany", tag = "companies",
    request_body = CompanyName,
    responses((status = 201, description = "The company", body = CompanyView)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<CompanyName>,
) -> Result<(StatusCode, axum::Json<CompanyView>), ApiError> {
    let companies = app.service()?.authority().companies();
    let row = companies.create(&caller, &body.name).await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

/// Get a company
#[utoipa::path(get, path = "/api/companies/{companyId}", operation_id = "getCompany", tag = "companies",
    params(("companyId" = String, Path, description = "The company's id")),
    responses((status = 200, description = "The company", body = CompanyView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<CompanyView>, ApiError> {
    caller.sees_company(&id)?;
    let row = app.service()?.authority().companies().get(&id).await?;
    Ok(axum::Json(row.into()))
}

/// Rename a company
#[utoipa::path(patch, path = "/api/companies/{companyId}", operation_id = "renameCompany", tag = "companies",
    params(("companyId" = String, Path, description = "The company's id")),
    request_body = CompanyName,
    responses((status = 200, description = "The company", body = CompanyView)))]
async fn rename(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Json(body): Json<CompanyName>,
) -> Result<axum::Json<CompanyView>, ApiError> {
    let companies = app.service()?.authority().companies();
    let row = companies.rename(&caller, &id, &body.name).await?;
    Ok(axum::Json(row.into()))
}

/// Export a company
///
/// Never with environments, secrets or what was measured of machines.
#[utoipa::path(get, path = "/api/companies/{companyId}/export", operation_id = "exportCompany", tag = "companies",
    params(("companyId" = String, Path, description = "The company's id")),
    responses((status = 200, description = "The company", body = ExportView)))]
async fn export(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<ExportView>, ApiError> {
    caller.sees_company(&id)?;
    let authority = app.service()?.authority();
    let row = authority.companies().get(&id).await?;
    let exported = Entry::new(
        "company.exported",
        Some(&id),
        "company",
        &id,
        json!({ "format": FORMAT }),
    );
    authority.activity().record(&caller, exported).await?;
    Ok(axum::Json(ExportView {
        format: FORMAT,
        company: row.into(),
    }))
}
