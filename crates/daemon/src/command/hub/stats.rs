//! `tickwire hub stats`.

use clap::Args;
use serde_json::{Value, json};

use super::super::print_line;
use super::request::ApiArgs;
use crate::exit::Failure;
use crate::http::request::percent_encode;

/// Options of `hub stats`.
#[derive(Args, Clone, Debug)]
pub struct QueryStats {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// Name of the series; without one, all names are printed.
    name: Option<String>,
    /// Start: seconds since 1970, now, or now- and a span such as 30d; default now-1h.
    #[arg(long, requires = "name")]
    from: Option<String>,
    /// End, not included; default now.
    #[arg(long, requires = "name")]
    to: Option<String>,
    /// Width of a row, a multiple of 10 s, such as 1m, 1h or 1d; default 1m.
    #[arg(long, requires = "name")]
    step: Option<String>,
    /// Dimensions to group by, separated by commas.
    #[arg(long, requires = "name")]
    by: Option<String>,
    /// Only series with these values of dimensions, such as map=dust2,region=eu.
    #[arg(long = "where", value_name = "FILTERS", requires = "name")]
    filters: Option<String>,
    /// Columns, separated by commas: count, sum, min, max, mean, last, uniques, p99; default count.
    #[arg(long, requires = "name")]
    columns: Option<String>,
}

impl QueryStats {
    pub(super) fn show(&self) -> Result<(), Failure> {
        match &self.name {
            Some(name) => self.show_rows(name),
            None => self.show_names(),
        }
    }

    fn show_names(&self) -> Result<(), Failure> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let mut page = self.api.json(&format!("GET /v1/stats{after}"), None)?;
            all.extend(take_list(&mut page, "names"));
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("?after={}", percent_encode(next)),
                None => break,
            }
        }
        if self.api.json {
            return print_line(&json!({"schema": 1, "names": all}).to_string());
        }
        let names = all.iter().filter_map(Value::as_str);
        names.into_iter().try_for_each(print_line)
    }

    fn show_rows(&self, name: &str) -> Result<(), Failure> {
        let mut rows = Vec::new();
        let mut page = self.api.json(&self.line(name, None), None)?;
        rows.extend(take_list(&mut page, "rows"));
        while let Some(next) = page.get("next").and_then(Value::as_u64) {
            // `now` of the first part, so that the range stays.
            let to = page.get("to").and_then(Value::as_u64).unwrap_or(next);
            page = self.api.json(&self.line(name, Some((next, to))), None)?;
            rows.extend(take_list(&mut page, "rows"));
        }
        if self.api.json {
            let list = json!({
                "schema": 1,
                "name": name,
                "step": page.get("step"),
                "columns": page.get("columns"),
                "by": page.get("by"),
                "rows": rows,
            });
            return print_line(&list.to_string());
        }
        let by = take_list(&mut page, "by");
        let columns = take_list(&mut page, "columns");
        let head = by.iter().chain(&columns).filter_map(Value::as_str);
        let head: Vec<&str> = std::iter::once("start").chain(head).collect();
        print_line(&head.join("\t"))?;
        for row in &rows {
            let mut cells = vec![row.get("start").map(Value::to_string).unwrap_or_default()];
            let group = by.iter().map(|name| cell(row, "group", name));
            let values = columns.iter().map(|name| cell(row, "values", name));
            cells.extend(group.chain(values));
            print_line(&cells.join("\t"))?;
        }
        Ok(())
    }

    /// Returns the request, of the given range.
    fn line(&self, name: &str, range: Option<(u64, u64)>) -> String {
        let (from, to) = match range {
            Some((from, to)) => (Some(from.to_string()), Some(to.to_string())),
            None => (self.from.clone(), self.to.clone()),
        };
        let parameters = [
            ("from", &from),
            ("to", &to),
            ("step", &self.step),
            ("by", &self.by),
            ("where", &self.filters),
            ("columns", &self.columns),
        ];
        let given = parameters.into_iter().filter_map(|(name, value)| {
            let value = value.as_deref()?;
            Some(format!("{name}={}", percent_encode(value)))
        });
        let query: Vec<String> = given.collect();
        format!("GET /v1/stats/{}?{}", percent_encode(name), query.join("&"))
    }
}

fn take_list(page: &mut Value, field: &str) -> Vec<Value> {
    let list = page.get_mut(field).and_then(Value::as_array_mut);
    list.map(std::mem::take).unwrap_or_default()
}

/// A cell as text; a dash for none. Control characters of a game must not reach the terminal.
fn cell(row: &Value, part: &str, name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    match row.get(part).and_then(|part| part.get(name)) {
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(number @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            number.to_string()
        }
    }
}
