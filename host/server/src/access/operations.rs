//! Which operation a route is: read once from the API's own description.
//!
//! A route whose `operationId` the policy does not know is a mistake of whoever built this server; it is found at start.

use std::collections::{HashMap, HashSet};

use axum::http::Method;
use leasehold_authority::Operation;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

/// Routes that say nothing about anybody and are answered to anybody that may address the server.
const OPEN: [&str; 2] = ["healthz", "readyz"];

/// The operations of every route.
#[derive(Debug, Default)]
pub struct Operations {
    by_path: HashMap<String, Vec<(Method, Operation)>>,
    /// Those that have parameters in their query.
    queried: HashSet<Operation>,
}

/// A route has no rule.
#[derive(Debug, thiserror::Error)]
#[error("no rule of the policy for `{method} {path}` ({operation:?})")]
pub struct NoRule {
    method: Method,
    path: String,
    operation: Option<String>,
}

impl Operations {
    /// Of every route of a description.
    ///
    /// # Errors
    /// A route without a rule.
    pub fn of(document: &OpenApi) -> Result<Operations, NoRule> {
        let mut queried = HashSet::new();
        let mut by_path: HashMap<String, Vec<(Method, Operation)>> = HashMap::new();
        for (path, item) in &document.paths.paths {
            let routes = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, route) in routes {
                let Some(route) = route else { continue };
                let id = route.operation_id.as_deref();
                if id.is_some_and(|id| OPEN.contains(&id)) {
                    continue;
                }
                let Some(operation) = id.and_then(Operation::named) else {
                    return Err(NoRule {
                        method,
                        path: path.clone(),
                        operation: route.operation_id.clone(),
                    });
                };
                let of_query = |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(known) if known.parameter_in == ParameterIn::Query);
                if route.parameters.iter().flatten().any(of_query) {
                    queried.insert(operation);
                }
                by_path
                    .entry(path.clone())
                    .or_default()
                    .push((method, operation));
            }
        }
        Ok(Operations { by_path, queried })
    }

    /// Whether an operation has parameters in its query; what else stands there is no more than a mistake.
    pub fn takes_query(&self, operation: Operation) -> bool {
        self.queried.contains(&operation)
    }

    /// What a request of this method to this route asks for; none where the route has no such method.
    pub fn asked(&self, method: &Method, path: &str) -> Option<Operation> {
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        self.by_path
            .get(path)?
            .iter()
            .find_map(|(known, operation)| (known == method).then_some(*operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_rule_and_every_rule_its_route() {
        let (_, document) = crate::api::openapi::routes().split_for_parts();
        let operations = Operations::of(&document).unwrap();
        let mut served: Vec<_> = operations.by_path.values().flatten().map(|o| o.1).collect();
        served.sort();
        assert_eq!(served, {
            let mut all = Operation::ALL.to_vec();
            all.sort();
            all
        });
        let lease = "/api/environment-leases/{leaseId}";
        assert_eq!(
            operations.asked(&Method::HEAD, lease),
            Some(Operation::GetLease)
        );
        assert_eq!(operations.asked(&Method::PUT, lease), None);
        assert_eq!(operations.asked(&Method::GET, "/api/x"), None);
    }

    #[test]
    fn a_route_without_a_rule_is_found_at_start() {
        let (_, mut document) = crate::api::openapi::routes().split_for_parts();
        let item = document.paths.paths.get_mut("/api/whoami").unwrap();
        item.get.as_mut().unwrap().operation_id = Some("somethingNew".into());
        let error = Operations::of(&document).unwrap_err();
        assert!(error.to_string().contains("GET /api/whoami"), "{error}");
    }
}
