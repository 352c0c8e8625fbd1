//! Bearer tokens, and who the caller is.

use axum::extract::State;
use axum::http::StatusCode;
use leasehold_authority::{ActorKind, NewToken, Role, Token};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::ApiError;
use super::time::Time;
use crate::access::{Caller, roles};
use crate::app::App;

/// What a token allows.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Role)]
pub enum RoleView {
    /// Everything, in every company.
    Admin,
    /// Reads and leases in one company.
    Member,
    /// Leases and runs commands in one company, nothing else.
    Agent,
}

impl From<Role> for RoleView {
    fn from(role: Role) -> RoleView {
        match role {
            Role::Admin => RoleView::Admin,
            Role::Member => RoleView::Member,
            Role::Agent => RoleView::Agent,
        }
    }
}

impl From<RoleView> for Role {
    fn from(role: RoleView) -> Role {
        match role {
            RoleView::Admin => Role::Admin,
            RoleView::Member => Role::Member,
            RoleView::Agent => Role::Agent,
        }
    }
}

/// A token, without its text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenView {
    /// `tok_…`
    id: String,
    /// For people.
    name: String,
    role: RoleView,
    /// The one company of a member or an agent.
    company_id: Option<String>,
    created_at: Time,
    /// When it was revoked, if it was.
    revoked_at: Option<Time>,
}

impl From<Token> for TokenView {
    fn from(row: Token) -> TokenView {
        TokenView {
            id: row.id,
            name: row.name,
            role: row.role.into(),
            company_id: row.company_id,
            created_at: row.created_at.into(),
            revoked_at: row.revoked_at.map(Into::into),
        }
    }
}

/// A token as it is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenDraft {
    /// For people.
    name: String,
    role: RoleView,
    /// Needed for a member and an agent, not allowed for an administrator.
    company_id: Option<String>,
}

/// A new token: the only answer that ever has its text.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewTokenView {
    token: TokenView,
    /// `lht_…`: shown now and never again.
    secret: String,
}

/// Which tokens.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct TokenQuery {
    /// Only those of this company.
    company_id: Option<String>,
}

/// Who the caller is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    /// `local-operator` or `token`
    kind: &'static str,
    /// For people.
    display: String,
    /// Of a token.
    token_id: Option<String>,
    /// Of a token.
    role: Option<RoleView>,
    /// Of a member's or an agent's token.
    company_id: Option<String>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(revoke))
        .routes(routes!(whoami))
}

/// List tokens
#[utoipa::path(get, path = "/api/tokens", operation_id = "listTokens", tag = "tokens",
    params(TokenQuery),
    responses((status = 200, description = "The tokens", body = Vec<TokenView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<TokenQuery>,
) -> Result<axum::Json<Vec<TokenView>>, ApiError> {
    roles::manage(&caller)?;
    let tokens = app.service()?.authority().tokens();
    let rows = tokens.list(query.company_id.as_deref()).await?;
    Ok(axum::Json(rows.into_iter().map(Into::into).collect()))
}

/// Create a token
#[utoipa::path(post, path = "/api/tokens", operation_id = "createToken", tag = "tokens",
    request_body = TokenDraft,
    responses((status = 201, description = "The token and its text", body = NewTokenView)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<TokenDraft>,
) -> Result<(StatusCode, axum::Json<NewTokenView>), ApiError> {
    roles::manage(&caller)?;
    let draft = NewToken {
        name: body.name,
        role: body.role.into(),
        company: body.company_id,
    };
    let (token, secret) = app
        .service()?
        .authority()
        .tokens()
        .create(&caller, draft)
        .await?;
    let answer = NewTokenView {
        token: token.into(),
        secret: secret.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

/// Revoke a token
///
/// It is nobody's from the next request on.
#[utoipa::path(delete, path = "/api/tokens/{tokenId}", operation_id = "revokeToken", tag = "tokens",
    params(("tokenId" = String, Path, description = "The token's id")),
    responses((status = 204, description = "It is revoked")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<StatusCode, ApiError> {
    roles::manage(&caller)?;
    app.service()?
        .authority()
        .tokens()
        .revoke(&caller, &id)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tell who the caller is
#[utoipa::path(get, path = "/api/whoami", operation_id = "whoami", tag = "tokens",
    responses((status = 200, description = "The caller", body = Whoami)))]
async fn whoami(caller: Caller) -> axum::Json<Whoami> {
    let Caller(actor) = caller;
    let (kind, token_id, role, company_id) = match actor.kind {
        ActorKind::LocalOperator => ("local-operator", None, None, None),
        ActorKind::System => ("system", None, None, None),
        ActorKind::Token { id, role, company } => ("token", Some(id), Some(role.into()), company),
    };
    axum::Json(Whoami {
        kind,
        display: actor.display,
        token_id,
        role,
        company_id,
    })
}
