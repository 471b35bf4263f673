//! Statistics: the names of series, and queries.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use hub::Name;
use hub::stats::{Aggregate, Cell, Query, QueryReason, QueryRefusal, QueryRow, StatText};
use serde_json::{Map, Value, json};

use super::parameter::{self, Parameters};
use super::shared::{Shared, busy};
use crate::http::error_response::ErrorResponse;

/// Lists the names of series, in order.
pub(super) async fn names(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let parameters = Parameters::read(&uri, &["after", "max"])?;
    let after: Option<Name> = parameters.parsed("after", "a name")?;
    let max = parameters.count("max", shared.config.page_max)?;
    let most = max.saturating_add(1);
    let names = shared.statistics(move |view| view.names(after, most));
    let mut names = names.await?;
    let has_more = names.len() > max;
    names.truncate(max);
    let next = names.last().filter(|_| has_more).map(ToString::to_string);
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    Ok(Json(json!({"names": names, "next": next})))
}

/// Answers a query with its first part.
pub(super) async fn query(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let name = parameter::name(name)?;
    let known = &["columns", "where", "by", "from", "to", "step"];
    let text = query_text(name, &Parameters::read(&uri, known)?);
    let now = shared.hub.statistics().unix_time();
    let query = Query::parse(&text, now).map_err(|error| {
        let detail = format!("{error}, in {text}");
        ErrorResponse::bad("bad_query", detail)
    })?;
    // With times in seconds, which a client repeats for the next part.
    let text = query.to_string();
    let page = shared
        .statistics(move |view| view.query(&text, now))
        .await??;
    let rows: Vec<Value> = page.rows.iter().map(|row| row_json(&query, row)).collect();
    Ok(Json(json!({
        "name": query.name.to_string(),
        "from": query.from.as_secs(),
        "to": query.to.as_secs(),
        "step": query.step.secs(),
        "columns": query.aggregates.iter().map(Aggregate::to_string).collect::<Vec<_>>(),
        "by": query.by.iter().map(Name::to_string).collect::<Vec<_>>(),
        "rows": rows,
        "next": page.next.map(wire::UnixTime::as_secs),
    })))
}

/// Returns the text form of a query. What a parameter holds beyond its part is a wrong query, or
/// another one that its sender may ask as well.
fn query_text(name: Name, parameters: &Parameters) -> String {
    let text = |parameter, default| parameters.text(parameter).unwrap_or(default);
    let clause = |word, parameter| match parameters.text(parameter) {
        Some(text) => format!(" {word} {text}"),
        None => String::new(),
    };
    format!(
        "{} of {name}{}{} from {} to {} step {}",
        text("columns", "count"),
        clause("where", "where"),
        clause("by", "by"),
        text("from", "now-1h"),
        text("to", "now"),
        text("step", "1m"),
    )
}

fn row_json(query: &Query, row: &QueryRow) -> Value {
    let group = query.by.iter().zip(&row.group);
    let group = group.map(|(name, value)| {
        let value = value.as_ref().map(StatText::as_str);
        (name.to_string(), value.into())
    });
    let cells = query.aggregates.iter().zip(&row.cells);
    let cells = cells.map(|(column, cell)| (column.to_string(), cell_json(cell)));
    json!({
        "start": row.start.as_secs(),
        "group": group.collect::<Map<String, Value>>(),
        "values": cells.collect::<Map<String, Value>>(),
    })
}

fn cell_json(cell: &Cell) -> Value {
    match cell {
        Cell::Empty => Value::Null,
        Cell::Number(number) => json!(number),
        Cell::Text(text) => text.as_str().into(),
    }
}

impl From<QueryRefusal> for ErrorResponse {
    fn from(QueryRefusal { reason, sentence }: QueryRefusal) -> Self {
        match reason {
            QueryReason::Syntax => Self::bad("bad_query", sentence),
            QueryReason::Rows | QueryReason::Work => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "query_too_large",
                sentence,
            ),
            QueryReason::Busy | QueryReason::Refused | QueryReason::HubDown | _ => {
                busy("busy", sentence)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_the_text_of_a_query_with_defaults() {
        let name = Name::new("tick_us").unwrap();
        let text = |query: &'static str| {
            let uri: Uri = format!("/v1/stats/tick_us?{query}").parse().unwrap();
            let known = &["columns", "where", "by", "from", "to", "step"];
            query_text(name, &Parameters::read(&uri, known).unwrap())
        };
        assert_eq!(text(""), "count of tick_us from now-1h to now step 1m");
        let now = wire::UnixTime::from_secs(1_800_000_000);
        let query =
            text("columns=p99,count&where=map%3D%22Dust%202%22&by=region,os&from=0&to=9&step=1d");
        let query = Query::parse(&query, now).unwrap();
        assert_eq!(
            (query.by.len(), query.aggregates.len(), query.filters.len()),
            (2, 2, 1)
        );
        assert!(Query::parse(&text("by=region%20from%200"), now).is_err());
    }

    #[test]
    fn an_answer_that_is_too_large_is_no_fault_of_its_form() {
        let status = |reason| {
            let sentence = "a sentence".to_owned();
            let error: ErrorResponse = QueryRefusal { reason, sentence }.into();
            axum::response::IntoResponse::into_response(error).status()
        };
        for (reason, expected) in [
            (QueryReason::Syntax, StatusCode::BAD_REQUEST),
            (QueryReason::Rows, StatusCode::UNPROCESSABLE_ENTITY),
            (QueryReason::Work, StatusCode::UNPROCESSABLE_ENTITY),
            (QueryReason::Busy, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(status(reason), expected);
        }
    }

    #[test]
    fn a_cell_is_null_a_number_or_a_text() {
        assert_eq!(cell_json(&Cell::Empty), Value::Null);
        assert_eq!(cell_json(&Cell::Number(1.5)), json!(1.5));
        // JSON has no such number.
        assert_eq!(cell_json(&Cell::Number(f64::INFINITY)), Value::Null);
    }
}
