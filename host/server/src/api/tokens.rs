//! Bearer tokens, and who the caller is.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use leasehold_authority::{ActorKind, NewToken, Role, Token};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::ApiError;
use super::ids;
use super::pages::{self, PageQuery, Place};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// What a token makes of its holder.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Role)]
pub enum RoleView {
    /// Instance administrator: everything, in every company.
    Admin,
    /// Board member: reads in the companies that it is bound to, without what tells of targets.
    Member,
    /// Leases and runs commands in one company, for all its runs or for one, and nothing else.
    Agent,
}

impl From<&Role> for RoleView {
    fn from(role: &Role) -> RoleView {
        match role {
            Role::Admin => RoleView::Admin,
            Role::Member { .. } => RoleView::Member,
            Role::Agent { .. } => RoleView::Agent,
        }
    }
}

fn owned(companies: Vec<&str>) -> Vec<String> {
    companies.into_iter().map(str::to_owned).collect()
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
    /// The companies that a member or an agent is bound to; empty of an administrator.
    company_ids: Vec<String>,
    /// The one run that an agent works for, where it works for one.
    run_id: Option<String>,
    created_at: Time,
    /// When it ends by itself, if it does.
    expires_at: Option<Time>,
    /// When a request last came with it, to the minute.
    last_used_at: Option<Time>,
    /// When it was revoked, if it was.
    revoked_at: Option<Time>,
}

impl From<Token> for TokenView {
    fn from(row: Token) -> TokenView {
        TokenView {
            id: row.id,
            name: row.name,
            role: (&row.role).into(),
            company_ids: owned(row.role.companies()),
            run_id: row.role.run().map(str::to_owned),
            created_at: row.created_at.into(),
            expires_at: row.expires_at.map(Into::into),
            last_used_at: row.last_used_at.map(Into::into),
            revoked_at: row.revoked_at.map(Into::into),
        }
    }
}

/// A token as it is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "name": "laptop", "role": "admin", "expiresInSeconds": 2592000 }))]
pub struct TokenDraft {
    /// For people.
    name: String,
    role: RoleView,
    /// The company of an agent, or of a member of one; not for an administrator.
    company_id: Option<String>,
    /// The companies of a member, instead of `companyId`.
    company_ids: Option<BTreeSet<String>>,
    /// The one run that an agent works for; without, it works for all runs of its company.
    run_id: Option<String>,
    /// How long it is good; without, until it is revoked.
    expires_in_seconds: Option<u64>,
}

impl TryFrom<TokenDraft> for NewToken {
    type Error = ApiError;

    fn try_from(body: TokenDraft) -> Result<NewToken, ApiError> {
        let companies = match (body.company_id, body.company_ids) {
            (Some(_), Some(_)) => {
                let text = "stands beside companyId; give one of the two";
                return Err(ApiError::field("/companyIds", text));
            }
            (Some(one), None) => BTreeSet::from([one]),
            (None, many) => many.unwrap_or_default(),
        };
        if body.run_id.is_some() && !matches!(body.role, RoleView::Agent) {
            let text = "only an agent works for a run: leave it out, or make an agent's token";
            return Err(ApiError::field("/runId", text));
        }
        let role = match (body.role, companies.len()) {
            (RoleView::Admin, 0) => Role::Admin,
            (RoleView::Member, 1..) => Role::Member { companies },
            (RoleView::Agent, 1) => Role::Agent {
                company: companies.into_iter().next().unwrap_or_default(),
                run: body.run_id,
            },
            (role, _) => {
                let text = match role {
                    RoleView::Admin => {
                        "an admin token is good in every company: leave the company out, or make a member or agent token of it"
                    }
                    RoleView::Member => "a member's token is bound to companies: name one at least",
                    RoleView::Agent => "an agent's token is bound to one company: name its id",
                };
                return Err(ApiError::field("/companyId", text));
            }
        };
        Ok(NewToken {
            name: body.name,
            role,
            expires_in: body.expires_in_seconds,
        })
    }
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
    /// Only those that are bound to this company.
    company_id: Option<String>,
    /// From the `Link` header of the page before.
    cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    limit: Option<u32>,
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
    /// The companies that a member or an agent is bound to; empty of whoever is bound to none.
    company_ids: Vec<String>,
    /// The one run that an agent works for, where it works for one.
    run_id: Option<String>,
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
    responses((status = 200, description = "A page of tokens, the oldest first", body = Vec<TokenView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    Query(query): Query<TokenQuery>,
) -> Result<Response, ApiError> {
    caller.sees_all()?;
    ids::check_filter("companyId", query.company_id.as_deref())?;
    let tokens = app.service()?.authority().tokens();
    let rows = tokens.list(query.company_id.as_deref()).await?;
    let asked = PageQuery {
        cursor: query.cursor,
        limit: query.limit,
    };
    let page = pages::of(rows, &asked, |row| {
        format!("{:020}.{}", row.created_at, row.id)
    })?;
    let views: Vec<TokenView> = page.items.into_iter().map(Into::into).collect();
    Ok(place.answer(views, page.next.as_deref()))
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
    let draft = body.try_into()?;
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
    let (kind, token_id, role) = match &caller.kind {
        ActorKind::LocalOperator => ("local-operator", None, None),
        ActorKind::System => ("system", None, None),
        ActorKind::Token { id, role } => ("token", Some(id.clone()), Some(role.into())),
    };
    axum::Json(Whoami {
        kind,
        display: caller.display.clone(),
        token_id,
        role,
        company_ids: owned(caller.companies().unwrap_or_default()),
        run_id: caller.run().map(str::to_owned),
    })
}
