//! Agents, projects, workspaces, issues and runs as rows that environments are assigned to, and what decides of several.
//!
//! Each kind has the same routes: a company's rows are made and listed, one is read, and but for a run its environment is
//! set or cleared. Who may is the policy's to say, what may be assigned the authority's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use leasehold_authority::{
    Assignee, AssigneeKind, AssigneePatch, Links, NewAssignee, Scope, View, WhoseAssignment,
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::ApiError;
use super::pages::{self, Place};
use super::select::{LackView, lacks};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;
use crate::service::Assigned;

/// An agent, a project, a workspace, an issue or a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Assignee)]
pub struct AssigneeView {
    /// The client's own, or made here.
    id: String,
    /// `agent`, `project`, `workspace`, `issue` or `run`
    kind: &'static str,
    company_id: String,
    name: Option<String>,
    /// What is assigned to it; never to a run.
    environment_id: Option<String>,
    /// Of a run.
    agent_id: Option<String>,
    /// Of a workspace, an issue or a run.
    project_id: Option<String>,
    /// Of a run.
    workspace_id: Option<String>,
    /// Of a run.
    issue_id: Option<String>,
    /// When a run ended; none while it goes on.
    ended_at: Option<Time>,
    created_at: Time,
    updated_at: Time,
}

impl From<Assignee> for AssigneeView {
    fn from(row: Assignee) -> AssigneeView {
        AssigneeView {
            id: row.id,
            kind: row.kind.as_str(),
            company_id: row.company_id,
            name: row.name,
            environment_id: row.environment_id,
            agent_id: row.links.agent,
            project_id: row.links.project,
            workspace_id: row.links.workspace,
            issue_id: row.links.issue,
            ended_at: row.ended_at.map(Into::into),
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// A page of rows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AssigneePage)]
pub struct AssigneePageView {
    /// In the order in which they were made.
    items: Vec<AssigneeView>,
    /// `cursor` of the next page; none at the end.
    next: Option<String>,
}

/// Which rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct AssigneeQuery {
    /// `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    limit: Option<u32>,
}

/// A new row.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AssigneeBody {
    /// Yours, 1 to 200 bytes, unique among those of its kind; without, one is made.
    id: Option<String>,
    /// 1 to 100 characters.
    name: Option<String>,
    /// What is assigned to it; not to a run.
    environment_id: Option<String>,
    /// Whose run it is.
    agent_id: Option<String>,
    /// The project of a workspace, an issue or a run.
    project_id: Option<String>,
    /// Where a run works.
    workspace_id: Option<String>,
    /// What a run works on.
    issue_id: Option<String>,
}

/// What of a row shall change; absent fields stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AssignBody {
    /// Another environment; `null` clears it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    environment_id: Option<Option<String>>,
    /// Another name; `null` removes it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// For whom or what.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct AssignmentQuery {
    /// An agent's id.
    agent: Option<String>,
    /// A project's id.
    project: Option<String>,
    /// An issue's id.
    issue: Option<String>,
    /// A workspace's id.
    workspace: Option<String>,
    /// A run's id: it stands for all that it belongs to. An agent that is bound to a run need not say it.
    run: Option<String>,
}

/// What one level says.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AssignmentLevel)]
pub struct LevelView {
    /// `workspace`, `issue`, `project`, `agent`, `company-default` or `instance-default`
    level: &'static str,
    /// The row that speaks, where there is one.
    id: Option<String>,
    /// What it names.
    environment_id: Option<String>,
    /// Not told to agents.
    environment_name: Option<String>,
    /// Whether what it names can be leased; none where nothing is named.
    allowed: Option<bool>,
    /// Why not.
    lacks: Vec<LackView>,
}

/// What decides, and what each level says.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Assignment)]
pub struct AssignmentView {
    company_id: String,
    /// The level that decides: the first that names an environment; none where none does.
    decided_by: Option<&'static str>,
    /// What it names.
    environment_id: Option<String>,
    /// Whether that can be leased. Where it cannot, no other level takes its place.
    allowed: bool,
    /// In the order of precedence.
    levels: Vec<LevelView>,
}

impl AssignmentView {
    fn seen(company: String, assigned: Assigned, view: View) -> AssignmentView {
        let decided = assigned.decided();
        AssignmentView {
            company_id: company,
            decided_by: decided.map(|said| said.level.as_str()),
            environment_id: decided.and_then(|said| said.environment.clone()),
            allowed: decided.is_some_and(|said| said.lacks.is_empty()),
            levels: assigned
                .levels
                .into_iter()
                .map(|said| LevelView {
                    level: said.level.as_str(),
                    id: said.by,
                    allowed: said.environment.as_ref().map(|_| said.lacks.is_empty()),
                    environment_id: said.environment,
                    environment_name: said.name.filter(|_| view != View::Safe),
                    lacks: lacks(said.lacks, view),
                })
                .collect(),
        }
    }
}

async fn make(
    app: &App,
    caller: &Caller,
    kind: AssigneeKind,
    company: &str,
    body: AssigneeBody,
) -> Result<(StatusCode, axum::Json<AssigneeView>), ApiError> {
    caller.sees_company(company)?;
    let new = NewAssignee {
        id: body.id,
        name: body.name,
        links: Links {
            agent: body.agent_id,
            project: body.project_id,
            workspace: body.workspace_id,
            issue: body.issue_id,
        },
        environment: body.environment_id,
    };
    let assignees = app.service()?.authority().assignees();
    let row = assignees.create(caller, kind, company, new).await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

async fn page(
    app: &App,
    caller: &Caller,
    place: &Place,
    kind: AssigneeKind,
    company: &str,
    query: AssigneeQuery,
) -> Result<Response, ApiError> {
    caller.sees_known_company(app, company).await?;
    let limit = pages::limit(query.limit)?;
    let assignees = app.service()?.authority().assignees();
    let page = assignees
        .list(kind, company, query.cursor.as_deref(), limit)
        .await?;
    let view = AssigneePageView {
        items: page.items.into_iter().map(Into::into).collect(),
        next: page.next,
    };
    Ok(place.answer(&view, view.next.as_deref()))
}

/// The row, if the caller may do with it what it asks for.
async fn seen(
    app: &App,
    caller: &Caller,
    kind: AssigneeKind,
    id: &str,
) -> Result<Assignee, ApiError> {
    let row = app.service()?.authority().assignees().get(kind, id).await?;
    caller.sees(Scope::Company(&row.company_id), kind.as_str(), id)?;
    Ok(row)
}

async fn change(
    app: &App,
    caller: &Caller,
    kind: AssigneeKind,
    id: &str,
    body: AssignBody,
) -> Result<axum::Json<AssigneeView>, ApiError> {
    seen(app, caller, kind, id).await?;
    let patch = AssigneePatch {
        name: body.name,
        environment: body.environment_id,
    };
    let assignees = app.service()?.authority().assignees();
    let row = assignees.update(caller, kind, id, patch).await?;
    Ok(axum::Json(row.into()))
}

/// How rows of a kind are made, listed and read.
macro_rules! rows {
    ($kind:ident $all:literal $one:literal $id:literal
     $list:literal $list_does:literal $create:literal $create_does:literal $get:literal $get_does:literal) => {
        #[utoipa::path(get, path = $all, operation_id = $list, summary = $list_does, tag = "assignment",
            params(("companyId" = String, Path, description = "The company's id"), AssigneeQuery),
            responses((status = 200, description = "A page of rows, in the order in which they were made", body = AssigneePageView)))]
        async fn list(
            State(app): State<App>,
            caller: Caller,
            Id(company): Id,
            place: Place,
            Query(query): Query<AssigneeQuery>,
        ) -> Result<Response, ApiError> {
            page(&app, &caller, &place, AssigneeKind::$kind, &company, query).await
        }

        #[utoipa::path(post, path = $all, operation_id = $create, summary = $create_does, tag = "assignment",
            params(("companyId" = String, Path, description = "The company's id")),
            request_body = AssigneeBody,
            responses((status = 201, description = "The row", body = AssigneeView)))]
        async fn create(
            State(app): State<App>,
            caller: Caller,
            Id(company): Id,
            Json(body): Json<AssigneeBody>,
        ) -> Result<(StatusCode, axum::Json<AssigneeView>), ApiError> {
            make(&app, &caller, AssigneeKind::$kind, &company, body).await
        }

        #[utoipa::path(get, path = $one, operation_id = $get, summary = $get_does, tag = "assignment",
            params(($id = String, Path, description = "The row's id")),
            responses((status = 200, description = "The row", body = AssigneeView)))]
        async fn get(
            State(app): State<App>,
            caller: Caller,
            Id(id): Id,
        ) -> Result<axum::Json<AssigneeView>, ApiError> {
            let row = seen(&app, &caller, AssigneeKind::$kind, &id).await?;
            Ok(axum::Json(row.into()))
        }
    };
}

/// How an environment is assigned to a row of a kind.
macro_rules! assigned {
    ($kind:ident $one:literal $id:literal $update:literal $update_does:literal) => {
        #[utoipa::path(patch, path = $one, operation_id = $update, summary = $update_does, tag = "assignment",
            params(($id = String, Path, description = "The row's id")),
            request_body = AssignBody,
            responses((status = 200, description = "The row", body = AssigneeView)))]
        async fn update(
            State(app): State<App>,
            caller: Caller,
            Id(id): Id,
            Json(body): Json<AssignBody>,
        ) -> Result<axum::Json<AssigneeView>, ApiError> {
            change(&app, &caller, AssigneeKind::$kind, &id, body).await
        }

        pub(super) fn router() -> OpenApiRouter<App> {
            OpenApiRouter::new()
                .routes(routes!(list, create))
                .routes(routes!(get, update))
        }
    };
}

mod agents {
    use super::*;

    rows!(
        Agent "/api/companies/{companyId}/agents" "/api/agents/{agentId}" "agentId"
        "listAgents" "List the agents of a company"
        "createAgent" "Make an agent"
        "getAgent" "Get an agent"
    );
    assigned!(
        Agent "/api/agents/{agentId}" "agentId"
        "updateAgent" "Assign an environment to an agent, or clear it"
    );
}

mod projects {
    use super::*;

    rows!(
        Project "/api/companies/{companyId}/projects" "/api/projects/{projectId}" "projectId"
        "listProjects" "List the projects of a company"
        "createProject" "Make a project"
        "getProject" "Get a project"
    );
    assigned!(
        Project "/api/projects/{projectId}" "projectId"
        "updateProject" "Assign an environment to a project, or clear it"
    );
}

mod workspaces {
    use super::*;

    rows!(
        Workspace "/api/companies/{companyId}/workspaces" "/api/workspaces/{workspaceId}" "workspaceId"
        "listWorkspaces" "List the workspaces of a company"
        "createWorkspace" "Make a workspace"
        "getWorkspace" "Get a workspace"
    );
    assigned!(
        Workspace "/api/workspaces/{workspaceId}" "workspaceId"
        "updateWorkspace" "Assign an environment to a workspace, or clear it"
    );
}

mod issues {
    use super::*;

    rows!(
        Issue "/api/companies/{companyId}/issues" "/api/issues/{issueId}" "issueId"
        "listIssues" "List the issues of a company"
        "createIssue" "Make an issue"
        "getIssue" "Get an issue"
    );
    assigned!(
        Issue "/api/issues/{issueId}" "issueId"
        "updateIssue" "Assign an environment to an issue, or clear it"
    );
}

mod runs {
    use super::*;

    rows!(
        Run "/api/companies/{companyId}/runs" "/api/runs/{runId}" "runId"
        "listRuns" "List the runs of a company"
        "createRun" "Make a run"
        "getRun" "Get a run"
    );

    /// A run that has ended.
    #[derive(Debug, Serialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    struct RunEndView {
        run: AssigneeView,
        /// The leases that were its own, and are released now.
        lease_ids: Vec<String>,
    }

    /// End a run
    ///
    /// Every lease that was made for it is released, commands that run on them are ended first, and none begins for it any
    /// more. Once it is answered nothing of that is lost, whatever becomes of the server. A run that has ended is ended.
    #[utoipa::path(post, path = "/api/runs/{runId}/end", operation_id = "endRun", tag = "assignment",
        params(("runId" = String, Path, description = "The run's id")),
        responses((status = 200, description = "The run, and which leases end with it", body = RunEndView)))]
    async fn end(
        State(app): State<App>,
        caller: Caller,
        Id(id): Id,
    ) -> Result<axum::Json<RunEndView>, ApiError> {
        let service = app.service()?;
        let kind = AssigneeKind::Run;
        let row = service.authority().assignees().get(kind, &id).await?;
        let scope = Scope::Run {
            company: &row.company_id,
            run: Some(&id),
        };
        caller.sees(scope, kind.as_str(), &id)?;
        let ended = service.end_run(&caller, &id).await?;
        let leases = ended.leases.into_iter();
        Ok(axum::Json(RunEndView {
            run: ended.run.into(),
            lease_ids: leases.map(|ended| ended.lease.id).collect(),
        }))
    }

    pub(super) fn router() -> OpenApiRouter<App> {
        OpenApiRouter::new()
            .routes(routes!(list, create))
            .routes(routes!(get))
            .routes(routes!(end))
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(resolve))
        .merge(agents::router())
        .merge(projects::router())
        .merge(workspaces::router())
        .merge(issues::router())
        .merge(runs::router())
}

/// Tell which environment is assigned, and what decides
///
/// Workspace, issue, project, agent, the company's default, the instance's: the first that names an environment decides,
/// also where that cannot be leased. Nothing is leased, started or reached by asking.
#[utoipa::path(get, path = "/api/companies/{companyId}/environments/assignment", operation_id = "resolveAssignment", tag = "assignment",
    params(("companyId" = String, Path, description = "The company's id"), AssignmentQuery),
    responses((status = 200, description = "What decides, and what each level says", body = AssignmentView)))]
async fn resolve(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(query): Query<AssignmentQuery>,
) -> Result<axum::Json<AssignmentView>, ApiError> {
    let links = Links {
        agent: query.agent,
        project: query.project,
        workspace: query.workspace,
        issue: query.issue,
    };
    let whose = whose(&caller, links, query.run);
    let scope = Scope::Run {
        company: &company,
        run: whose.run.as_deref(),
    };
    let view = caller.sees(scope, "company", &company)?;
    let assigned = app.service()?.assigned(&company, &whose).await?;
    Ok(axum::Json(AssignmentView::seen(company, assigned, view)))
}

/// For whom it is asked: an agent that is bound to a run asks for that run, whether it says so or not.
pub fn whose(caller: &Caller, links: Links, run: Option<String>) -> WhoseAssignment {
    let own = caller.run().map(str::to_owned);
    WhoseAssignment {
        run_may_be_unknown: run.is_none() || run == own,
        run: run.or(own),
        links,
    }
}
