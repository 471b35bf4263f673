//! Reference tables in pages, generated from the fields of structs and their docs.
//!
//! A page marks a table with `<!-- table: KIND CRATE STRUCT -->` and `<!-- table: end -->`. `cargo
//! xtask book --write` generates it, `cargo xtask book` compares it.
//!
//! | kind | rows |
//! |---|---|
//! | `file` | fields of a struct that serde reads: type, whether it is required, meaning |
//! | `config` | fields of a struct with `Default`: type, default, meaning |
//! | `counters` | counters of a struct, with the prefix that follows the struct's name in the mark |
//! | `graph crates` | no table: the picture of the crates and their imports |
//! | `codes` | 0 for success, and the variants of an enum with their numbers |
//! | `variants` | variants of an enum |
//! | `limits` | constants of a crate, `NAME` or `TYPE::NAME`, all in the mark |

mod constant;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use crate::crate_graph;
use crate::failure::Failure;
use crate::tree::{Finding, View, Workspace, extension};

/// The beginning of a mark.
const MARK: &str = "<!-- table: ";
/// The mark at the end of a table.
const END: &str = "<!-- table: end -->";

/// Compares the tables of all pages with the source.
pub(crate) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in pages(view) {
        match filled(view, text) {
            Ok(expected) => findings.extend(difference(path, text, &expected)),
            Err((line, fault)) => findings.push(Finding::at(path, line, fault)),
        }
    }
    findings
}

/// Returns the first line that differs.
fn difference(path: &str, text: &str, expected: &str) -> Option<Finding> {
    let lines = text.lines().zip(expected.lines());
    let line = lines.take_while(|(left, right)| left == right).count() + 1;
    let fault = "differs from the source: run `cargo xtask book --write`";
    (text != expected).then(|| Finding::at(path, line, fault))
}

/// Generates the tables of all pages.
pub(crate) fn write(workspace: &Workspace) -> Result<(), Failure> {
    let view = workspace.view();
    for (path, text) in pages(&view) {
        let expected = filled(&view, text)
            .map_err(|(line, fault)| Failure::Check(format!("{path}:{line}: {fault}")))?;
        fs::write(path, expected).map_err(|source| Failure::File {
            path: Path::new(path).to_path_buf(),
            source,
        })?;
        println!("book: {path} has its tables");
    }
    Ok(())
}

fn pages<'v>(view: &View<'v>) -> impl Iterator<Item = (&'v String, &'v String)> {
    view.files.iter().filter(|(path, text)| {
        let is_page = path.starts_with("docs/") || *path == "ARCHITECTURE.md";
        is_page && extension(path) == "md" && text.contains(MARK)
    })
}

/// Returns the page with new tables, or the line of a mark and its fault.
fn filled(view: &View<'_>, text: &str) -> Result<String, (usize, String)> {
    let mut out = String::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(mark) = line.strip_prefix(MARK).filter(|_| line != END) else {
            continue;
        };
        let mark = mark.trim_end_matches("-->").trim();
        let table = table(view, mark).map_err(|fault| (number, fault))?;
        let is_closed = lines.any(|(_, line)| line == END);
        if !is_closed {
            return Err((number, format!("has no `{END}` behind it")));
        }
        out.extend(["\n", &table, "\n", END, "\n"]);
    }
    Ok(out)
}

/// Generates the table that a mark names.
fn table(view: &View<'_>, mark: &str) -> Result<String, String> {
    if mark == "graph crates" {
        return Ok(crate_graph::draw(view.members));
    }
    let mut words = mark.split_whitespace();
    let (Some(kind), Some(owner), Some(name)) = (words.next(), words.next(), words.next()) else {
        return Err("names no kind, crate and struct".to_owned());
    };
    if kind == "limits" {
        let rows: Result<Vec<String>, String> = core::iter::once(name)
            .chain(words)
            .map(|name| constant::row(view, owner, name))
            .collect();
        let head = "| constant | value | meaning |\n|---|---|---|".to_owned();
        return Ok(format!("{head}\n{}\n", rows?.join("\n")));
    }
    let is_enum = matches!(kind, "codes" | "variants");
    let item = if is_enum { "enum" } else { "struct" };
    let declared = || declared(view, owner, name).filter(|_| is_enum);
    let body = body(view, owner, &format!("pub {item} {name} {{"))
        .map(Cow::Borrowed)
        .or_else(|| declared().map(Cow::Owned))
        .ok_or_else(|| format!("crate {owner} has no `pub {item} {name}`"))?;
    let body = &*body;
    let mut lines = Vec::new();
    match kind {
        "file" => {
            lines.push("| field | type | | meaning |\n|---|---|---|---|".to_owned());
            lines.extend(fields(body).iter().map(Field::file_row));
        }
        "config" => {
            let defaults = body_of_default(view, owner, name).ok_or_else(|| {
                format!("crate {owner} has no `Default` of {name} field by field")
            })?;
            lines.push("| field | type | default | meaning |\n|---|---|---|---|".to_owned());
            lines.extend(fields(body).iter().map(|field| field.config_row(defaults)));
        }
        "counters" => {
            lines.push("| metric | counts |\n|---|---|".to_owned());
            counters(view, owner, body, words.next().unwrap_or(""), &mut lines);
        }
        "codes" => {
            lines.push("| code | meaning |\n|---|---|".to_owned());
            lines.extend(codes(body));
        }
        "variants" => {
            lines.push("| variant | meaning |\n|---|---|".to_owned());
            lines.extend(variants(body));
        }
        other => return Err(format!("has the unknown kind {other}")),
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// Returns the body of an item in a crate's sources: the text between its first line and its
/// closing brace.
fn body<'v>(view: &'v View<'_>, owner: &str, head: &str) -> Option<&'v str> {
    let folder = format!("crates/{owner}/src/");
    let sources = view.sources.iter();
    sources
        .filter(|source| source.path.starts_with(&folder))
        .find_map(|source| {
            let at = source.text.find(&format!("\n{head}"))?;
            let rest = source.text.get(at + 1 + head.len()..)?;
            rest.split_once("\n}").map(|(body, _)| body)
        })
}

/// Returns the body of an enum that a macro declares: with docs, and indented by one level.
fn declared(view: &View<'_>, owner: &str, name: &str) -> Option<String> {
    let folder = format!("crates/{owner}/src/");
    let sources = view.sources.iter();
    let mut sources = sources.filter(|source| source.path.starts_with(&folder));
    sources.find_map(|source| {
        let (before, rest) = source.text.split_once(&format!("\n    {name} {{\n"))?;
        let has_docs = before.lines().next_back()?.starts_with("    ///");
        let (body, _) = rest.split_once("\n    }").filter(|_| has_docs)?;
        let lines = body
            .lines()
            .map(|line| line.strip_prefix("    ").unwrap_or(line));
        Some(lines.collect::<Vec<_>>().join("\n"))
    })
}

/// Returns the fields of `Default`, or else those of the first constructor.
fn body_of_default<'v>(view: &'v View<'_>, owner: &str, name: &str) -> Option<&'v str> {
    let of_trait = body(view, owner, &format!("impl Default for {name} {{"));
    let body = of_trait.or_else(|| body(view, owner, &format!("impl {name} {{")))?;
    body.split_once("Self {").map(|(_, fields)| fields)
}

/// A field of a struct.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    name: String,
    /// Its name in files and metrics: as serde renames it.
    serialized: String,
    kind: String,
    /// First paragraph of its docs, without links.
    meaning: String,
    /// Its attributes.
    attributes: String,
}

/// Returns the public fields in a struct's body.
fn fields(body: &str) -> Vec<Field> {
    let (mut found, mut docs, mut attributes) = (Vec::new(), Vec::new(), String::new());
    let mut lines = body.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if line.starts_with("#[") {
            attributes.push_str(line);
            while !attributes.ends_with(']') {
                let Some(more) = lines.next() else { break };
                attributes.push_str(more);
            }
        } else if let Some((name, kind)) =
            line.strip_prefix("pub ").and_then(|it| it.split_once(": "))
        {
            let serialized = quoted(&attributes, "rename = ");
            found.push(Field {
                serialized: serialized.unwrap_or(name).to_owned(),
                name: name.to_owned(),
                kind: kind.trim_end_matches(',').to_owned(),
                meaning: meaning(&docs),
                attributes: core::mem::take(&mut attributes),
            });
            docs.clear();
        } else {
            docs.clear();
            attributes.clear();
        }
    }
    found
}

/// Returns the quoted text after `key` in a field's attributes.
fn quoted<'a>(attributes: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = attributes.split_once(&format!("{key}\""))?;
    rest.split_once('"').map(|(text, _)| text)
}

impl Field {
    fn file_row(&self) -> String {
        let inner = self
            .kind
            .strip_prefix("Option<")
            .and_then(|it| it.strip_suffix('>'));
        let kind = inner.unwrap_or(&self.kind);
        let is_optional = self.attributes.contains("default") || inner.is_some();
        let need = if is_optional { "" } else { "required" };
        format!(
            "| `{}` | `{kind}` | {need} | {} |",
            self.serialized, self.meaning
        )
    }

    fn config_row(&self, defaults: &str) -> String {
        let lines = defaults.lines().map(str::trim);
        let own = lines
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| *name == self.name);
        let default = own.map_or_else(String::new, |(_, value)| {
            format!("`{}`", value.trim_end_matches(',').replace('|', "\\|"))
        });
        format!(
            "| `{}` | `{}` | {default} | {} |",
            self.name, self.kind, self.meaning
        )
    }
}

/// Adds the rows of a struct of counters, including nested structs.
fn counters(view: &View<'_>, owner: &str, text: &str, prefix: &str, lines: &mut Vec<String>) {
    for field in fields(text) {
        let Field {
            serialized: name,
            kind,
            meaning,
            ..
        } = &field;
        let inner = body(view, owner, &format!("pub struct {kind} {{"));
        if let Some(inner) = inner {
            counters(view, owner, inner, &format!("{prefix}{name}_"), lines);
        } else if let Some(reason) = name.strip_prefix("dropped_") {
            lines.push(format!(
                "| `{prefix}dropped_total{{reason=\"{reason}\"}}` | {meaning} |"
            ));
        } else {
            lines.push(format!("| `{prefix}{name}_total` | {meaning} |"));
        }
    }
}

/// Returns the rows of an enum with numbers.
fn codes(body: &str) -> Vec<String> {
    let (mut rows, mut docs) = (vec!["| 0 | Success. |".to_owned()], Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if let Some((_, code)) = line.split_once(" = ") {
            rows.push(format!(
                "| {} | {} |",
                code.trim_end_matches(','),
                meaning(&docs)
            ));
            docs.clear();
        }
    }
    rows
}

/// Returns the rows of an enum.
fn variants(body: &str) -> Vec<String> {
    let (mut rows, mut docs) = (Vec::new(), Vec::new());
    // Deeper lines are fields of a variant.
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    for line in lines.filter(|line| !line.starts_with(' ')) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        let end = line.find(|char: char| !char.is_alphanumeric());
        let name = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
        if !name.is_empty() {
            rows.push(format!("| `{name}` | {} |", meaning(&docs)));
            docs.clear();
        }
    }
    rows
}

/// Returns the first paragraph of docs in one line; links are replaced by their texts.
fn meaning(docs: &[&str]) -> String {
    let paragraph: Vec<_> = docs
        .iter()
        .copied()
        .take_while(|line| !line.is_empty())
        .collect();
    let mut text = paragraph.join(" ").replace('|', "\\|");
    // rustdoc links: [`Name`], [`Name`](path) and [text](path).
    while let Some((before, rest)) = text.split_once('[') {
        let Some((inner, after)) = rest.split_once(']') else {
            break;
        };
        let after = after
            .strip_prefix('(')
            .and_then(|it| it.split_once(')'))
            .map_or(after, |it| it.1);
        text = format!("{before}{inner}{after}");
    }
    text
}
