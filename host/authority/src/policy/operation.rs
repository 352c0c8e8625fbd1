//! Every operation that somebody may ask for, with who may: the table that access is decided by.
//!
//! A row is an operation's variant, its name (the `operationId` of its route), and a cell each for board members and
//! for agents. The local operator and instance administrators may do all of them, so they have no column. An operation
//! without a row does not exist, and a route without an operation is not served.

use super::{Cell, Span, View};

const fn cell(span: Span, view: View) -> Option<Cell> {
    Some(Cell { span, view })
}

/// Not at all.
const NO: Option<Cell> = None;
/// Whatever row it names: what it tells is about the caller alone, or cut to what is the caller's.
const ANY: Option<Cell> = cell(Span::Caller, View::Whole);
/// Rows of the caller's companies, and those that all companies share.
const SEE: Option<Cell> = cell(Span::Company, View::Whole);
/// The same without what tells of targets.
const READ: Option<Cell> = cell(Span::Company, View::Blanked);
/// The same, and of those what an agent chooses by alone.
const SAFE: Option<Cell> = cell(Span::Company, View::Safe);
/// What is its run's, and of that what an agent chooses by alone.
const RUN: Option<Cell> = cell(Span::Run, View::Safe);
/// Rows of the caller's company that are its run's; of all runs where it is bound to none.
const USE: Option<Cell> = cell(Span::Run, View::Whole);

macro_rules! operations {
    ($($variant:ident $name:literal $member:ident $agent:ident;)*) => {
        /// What somebody asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Operation {
            $(#[doc = concat!("`", $name, "` of the HTTP API.")] $variant,)*
        }

        impl Operation {
            /// Each of them.
            pub const ALL: &[Operation] = &[$(Operation::$variant),*];

            /// The `operationId` of its route.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$variant => $name,)*
                }
            }

            /// The operation of this `operationId`.
            pub fn named(name: &str) -> Option<Operation> {
                match name {
                    $($name => Some(Operation::$variant),)*
                    _ => None,
                }
            }

            pub(super) const fn member(self) -> Option<Cell> {
                match self {
                    $(Operation::$variant => $member,)*
                }
            }

            pub(super) const fn agent(self) -> Option<Cell> {
                match self {
                    $(Operation::$variant => $agent,)*
                }
            }
        }
    };
}

operations! {
    // operation            its name                 board member  agent
    Whoami                  "whoami"                        ANY   ANY;
    GetProgress             "getProgress"                   ANY   ANY;
    Metrics                 "metrics"                       NO    NO;
    GetInstanceSettings     "getInstanceSettings"           ANY   NO;
    UpdateInstanceSettings  "updateInstanceSettings"        NO    NO;

    ListCompanies           "listCompanies"                 ANY   ANY;
    CreateCompany           "createCompany"                 NO    NO;
    GetCompany              "getCompany"                    SEE   NO;
    RenameCompany           "renameCompany"                 NO    NO;
    ExportCompany           "exportCompany"                 NO    NO;

    ListTokens              "listTokens"                    NO    NO;
    CreateToken             "createToken"                   NO    NO;
    RevokeToken             "revokeToken"                   NO    NO;

    InspectPlugin           "inspectPlugin"                 NO    NO;
    InstallPlugin           "installPlugin"                 NO    NO;
    ListPlugins             "listPlugins"                   NO    NO;
    GetPlugin               "getPlugin"                     NO    NO;
    GrantPlugin             "grantPlugin"                   NO    NO;
    DenyPlugin              "denyPlugin"                    NO    NO;
    RollbackPlugin          "rollbackPlugin"                NO    NO;
    ResetPlugin             "resetPlugin"                   NO    NO;
    EnablePlugin            "enablePlugin"                  NO    NO;
    DisablePlugin           "disablePlugin"                 NO    NO;
    RemovePlugin            "removePlugin"                  NO    NO;

    ListSecrets             "listSecrets"                   NO    NO;
    CreateSecret            "createSecret"                  NO    NO;
    ListInstanceSecrets     "listInstanceSecrets"           NO    NO;
    CreateInstanceSecret    "createInstanceSecret"          NO    NO;
    GetSecret               "getSecret"                     NO    NO;
    ListSecretUses          "listSecretUses"                NO    NO;
    ListSecretVersions      "listSecretVersions"            NO    NO;
    RotateSecret            "rotateSecret"                  NO    NO;
    UpdateSecretVersion     "updateSecretVersion"           NO    NO;
    DeleteSecret            "deleteSecret"                  NO    NO;
    ListSecretAccesses      "listSecretAccesses"            NO    NO;

    ListEnvironments        "listEnvironments"              READ  NO;
    CreateEnvironment       "createEnvironment"             NO    NO;
    GetEnvironment          "getEnvironment"                READ  NO;
    UpdateEnvironment       "updateEnvironment"             NO    NO;
    DeleteEnvironment       "deleteEnvironment"             NO    NO;
    GetDeleteBlastRadius    "getDeleteBlastRadius"          NO    NO;
    ListSecretRefs          "listSecretRefs"                NO    NO;
    GetCapabilities         "getCapabilities"               SEE   SAFE;
    ResolveEnvironment      "resolveEnvironment"            SEE   SEE;
    ProbeEnvironment        "probeEnvironment"              NO    NO;
    ProbeDraft              "probeDraft"                    NO    NO;
    FetchHostKey            "fetchHostKey"                  NO    NO;
    GetDefaultEnvironment   "getDefaultEnvironment"         SEE   NO;
    SetDefaultEnvironment   "setDefaultEnvironment"         NO    NO;
    SelectEnvironment       "selectEnvironment"             SEE   SAFE;

    ResolveAssignment       "resolveAssignment"             SEE   RUN;
    ListAgents              "listAgents"                    SEE   NO;
    CreateAgent             "createAgent"                   NO    NO;
    GetAgent                "getAgent"                      SEE   NO;
    UpdateAgent             "updateAgent"                   NO    NO;
    ListProjects            "listProjects"                  SEE   NO;
    CreateProject           "createProject"                 NO    NO;
    GetProject              "getProject"                    SEE   NO;
    UpdateProject           "updateProject"                 NO    NO;
    ListWorkspaces          "listWorkspaces"                SEE   NO;
    CreateWorkspace         "createWorkspace"               NO    NO;
    GetWorkspace            "getWorkspace"                  SEE   NO;
    UpdateWorkspace         "updateWorkspace"               NO    NO;
    ListIssues              "listIssues"                    SEE   NO;
    CreateIssue             "createIssue"                   NO    NO;
    GetIssue                "getIssue"                      SEE   NO;
    UpdateIssue             "updateIssue"                   NO    NO;
    ListRuns                "listRuns"                      SEE   NO;
    CreateRun               "createRun"                     NO    NO;
    GetRun                  "getRun"                        SEE   NO;
    EndRun                  "endRun"                        NO    USE;

    AcquireLease            "acquireLease"                  NO    USE;
    AcquireChosenLease      "acquireChosenLease"            NO    USE;
    ListLeases              "listLeases"                    READ  USE;
    ListCompanyLeases       "listCompanyLeases"             READ  USE;
    GetLease                "getLease"                      READ  USE;
    ObserveLease            "observeLease"                  NO    USE;
    RenewLease              "renewLease"                    NO    USE;
    ReleaseLease            "releaseLease"                  NO    USE;
    AbandonLease            "abandonLease"                  NO    NO;

    RunCommand              "runCommand"                    NO    USE;
    StreamCommand           "streamCommand"                 NO    USE;
    CreateStreamTicket      "createStreamTicket"            NO    USE;
    ListExecutions          "listExecutions"                NO    USE;
    GetExecution            "getExecution"                  NO    USE;
    SignalExecution         "signalExecution"               NO    USE;
    PutFiles                "putFiles"                      NO    USE;
    GetFiles                "getFiles"                      NO    USE;

    ListCompanyActivity     "listCompanyActivity"           READ  NO;
    ListActivity            "listActivity"                  NO    NO;
    VerifyActivity          "verifyActivity"                NO    NO;
    StreamCompanyActivity   "streamCompanyActivity"         READ  NO;
    StreamActivity          "streamActivity"                NO    NO;
    GetActivityHead         "getActivityHead"               NO    NO;
    ExportActivity          "exportActivity"                NO    NO;
    CheckActivityExport     "checkActivityExport"           NO    NO;
}
