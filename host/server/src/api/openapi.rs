//! The OpenAPI description, made of the routes themselves: a route without its description cannot be added.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use leasehold_authority::Operation;
use serde::Serialize;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, Header, HeaderBuilder, ObjectBuilder, OpenApi, Ref, RefOr, ResponseBuilder,
    ServerBuilder,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::errors::ErrorCode;
use super::once;
use crate::app::App;

/// The shape of every refusal.
#[derive(Debug, Serialize, ToSchema)]
pub struct Refusal {
    /// One sentence for a person.
    error: String,
    details: RefusalDetails,
}

/// What a program looks at.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusalDetails {
    #[schema(schema_with = codes)]
    code: String,
    /// Every field that is wrong, where fields are.
    violations: Option<Vec<Violation>>,
}

/// A field that is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct Violation {
    /// RFC 6901 pointer into what was sent; empty for the whole, `?name` for a query.
    pointer: String,
    /// What is wrong and how to mend it.
    message: String,
}

fn codes() -> utoipa::openapi::schema::Object {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .enum_values(Some(ErrorCode::ALL.iter().map(|c| c.as_str())))
        .description(Some("One of the documented codes"))
        .build()
}

/// Every route with its description, without the gate.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(OpenApi::new(
        utoipa::openapi::InfoBuilder::new()
            .title("Leasehold")
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some(
                "Leases execution environments to agents. Errors are described in docs/errors.md, the \
                 stream of a command in docs/execution-stream.md.",
            ))
            .build(),
        utoipa::openapi::Paths::new(),
    ))
    .merge(super::companies::router())
    .merge(super::tokens::router())
    .merge(super::plugins::router())
    .merge(super::secrets::router())
    .merge(super::accesses::router())
    .merge(super::environments::router())
    .merge(super::deletion::router())
    .merge(super::capabilities::router())
    .merge(super::instance::router())
    .merge(super::names::router())
    .merge(super::select::router())
    .merge(super::assignments::router())
    .merge(super::probe::router())
    .merge(super::leases::router())
    .merge(super::progress::router())
    .merge(super::executions::router())
    .merge(super::stream::router())
    .merge(super::files::router())
    .merge(super::activity::router())
    .merge(super::activity_stream::router())
    .merge(super::activity_chain::router())
    .merge(super::health::router())
}

/// Adds what is the same for all: how a caller says who it is, and how a refusal looks.
pub fn finish(mut document: OpenApi) -> Bytes {
    document.servers = Some(vec![ServerBuilder::new().url("/").build()]);
    document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(
        "bearer",
        [],
    )]);
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(
        "bearer",
        SecurityScheme::Http(
            HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some(
                    "A token made by `POST /api/tokens`, or the operator's own from the data directory. On \
                     the Unix socket the server's own user needs none.",
                ))
                .build(),
        ),
    );
    let mut schemas = vec![(Refusal::name().into_owned(), Refusal::schema())];
    Refusal::schemas(&mut schemas);
    components.schemas.extend(schemas);
    let refusal = || {
        RefOr::T(
            ResponseBuilder::new()
                .description("Refused; `details.code` says why")
                .content(
                    "application/json",
                    ContentBuilder::new()
                        .schema(Some(Ref::from_schema_name(Refusal::name())))
                        .build(),
                )
                .build(),
        )
    };
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            let named = operation.operation_id.as_deref();
            if named.and_then(Operation::named).is_some_and(once::takes) {
                let parameters = operation.parameters.get_or_insert_default();
                parameters.push(RefOr::T(idempotency_key()));
            }
            let paged = |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(known) if ["cursor", "before"].contains(&known.name.as_str()));
            if operation.parameters.iter().flatten().any(paged)
                && let Some(RefOr::T(page)) = operation.responses.responses.get_mut("200")
            {
                page.headers.insert("Link".to_owned(), RefOr::T(link()));
            }
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    describe(parameter);
                }
            }
            for range in ["4XX", "5XX"] {
                operation
                    .responses
                    .responses
                    .entry(range.to_owned())
                    .or_insert_with(refusal);
            }
        }
    }
    Bytes::from(document.to_json().unwrap_or_default())
}

fn link() -> Header {
    HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some(
            "Where the list goes on, with rel=\"next\" (RFC 8288); missing on the last page",
        ))
        .build()
}

fn idempotency_key() -> Parameter {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .description(Some(
            "The same key with the same request does it once and answers the same again, for a day; a lease's, as long as \
             the lease is known",
        ))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some("^[!#-\\[\\]-~]{1,200}$")),
        ))
        .build()
}

/// Says of an id in a path what ids look like.
fn describe(parameter: &mut Parameter) {
    let of_path = matches!(parameter.parameter_in, ParameterIn::Path);
    if let (true, Some(pattern)) = (of_path, super::ids::pattern(&parameter.name)) {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some(pattern));
        parameter.schema = Some(text.into());
    }
}

/// The description, as it is.
pub async fn serve(document: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        let (_, document) = routes().split_for_parts();
        serde_json::from_slice(&finish(document)).unwrap()
    }

    fn operations(document: &Value) -> Vec<(String, String, Value)> {
        let mut all = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                all.push((path.clone(), method.clone(), operation.clone()));
            }
        }
        all
    }

    fn resolves(document: &Value, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target} is nowhere");
                }
                map.values().for_each(|v| resolves(document, v));
            }
            Value::Array(list) => list.iter().for_each(|v| resolves(document, v)),
            _ => {}
        }
    }

    #[test]
    fn every_operation_says_what_it_does_takes_and_answers() {
        let document = document();
        assert_eq!(document["openapi"].as_str().unwrap()[..3], *"3.1");
        let operations = operations(&document);
        assert!(operations.len() > 40, "{}", operations.len());
        let mut ids = std::collections::BTreeSet::new();
        for (path, method, operation) in &operations {
            let at = format!("{method} {path}");
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap()),
                "{at}"
            );
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{at}");
            assert_eq!(operation["tags"].as_array().unwrap().len(), 1, "{at}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("4XX"), "{at}");
            let (code, good) = responses.iter().find(|(c, _)| !c.contains("XX")).unwrap();
            if !matches!(code.as_str(), "204" | "101") {
                let content = good["content"]
                    .as_object()
                    .unwrap_or_else(|| panic!("{at} answers nothing"));
                let schema = &content.values().next().unwrap()["schema"];
                let precise = schema.get("$ref").is_some()
                    || schema["type"] == "array"
                    || schema["type"] == "string";
                assert!(precise, "{at} answers an object of anything: {schema}");
            }
            for name in path
                .split('/')
                .filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
            {
                let described = operation["parameters"].as_array().unwrap();
                assert!(
                    described.iter().any(|p| p["name"] == name),
                    "{at} does not describe {name}"
                );
            }
        }
        resolves(&document, &document);
    }

    #[test]
    fn every_list_is_paged_and_says_where_it_goes_on() {
        let document = document();
        let mut lists = 0;
        for (path, method, operation) in operations(&document) {
            let good = &operation["responses"]["200"];
            if method != "get" || good["content"]["application/json"]["schema"]["type"] != "array" {
                continue;
            }
            let parameters = operation["parameters"].as_array().unwrap();
            for name in ["cursor", "limit"] {
                assert!(parameters.iter().any(|p| p["name"] == name), "{path}");
            }
            assert!(!good["headers"]["Link"].is_null(), "{path}");
            lists += 1;
        }
        assert!(lists >= 7, "{lists}");
    }

    #[test]
    fn it_lists_the_error_codes() {
        let codes =
            &document()["components"]["schemas"]["RefusalDetails"]["properties"]["code"]["enum"];
        assert_eq!(codes.as_array().unwrap().len(), ErrorCode::ALL.len());
    }
}
