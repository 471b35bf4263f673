//! Questions to a running node.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::document;
use crate::exit::Failure;
use crate::http::client::{self, Request};
use crate::relay::replace;

/// Which node to ask.
#[derive(Args, Clone, Debug)]
pub struct Asked {
    /// Where its admin interface listens, as IP:PORT.
    #[arg(long)]
    http: SocketAddr,
    /// The node's token file.
    #[arg(long)]
    token_file: PathBuf,
    /// Seconds to wait for an answer.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

/// A signed document for a node.
#[derive(Args, Clone, Debug)]
pub struct PutConfig {
    #[command(flatten)]
    node: Asked,
    /// The signed document, or one that is signed now.
    document: PathBuf,
    /// The key file of an admin who signs it now; once for each.
    #[arg(long = "key")]
    keys: Vec<PathBuf>,
}

/// The document in force.
#[derive(Args, Clone, Debug)]
pub struct GetConfig {
    #[command(flatten)]
    node: Asked,
    /// Writes it to this file with its signatures, as other nodes take it.
    #[arg(long)]
    signed_to: Option<PathBuf>,
}

/// A picture of the mesh.
#[derive(Args, Clone, Debug)]
pub struct AskGraph {
    #[command(flatten)]
    node: Asked,
    /// How it is written.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A way through the mesh.
#[derive(Args, Clone, Debug)]
pub struct AskRoute {
    #[command(flatten)]
    node: Asked,
    /// A node, by id or name.
    from: String,
    /// A node, by id or name, or a game.
    to: String,
    /// How it is written.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
    Mermaid,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Mermaid => "mermaid",
        }
    }
}

impl Asked {
    /// Asks, and shows what comes back.
    pub(super) fn show(&self, line: &str) -> Result<(), Failure> {
        show(&self.ask(line, None)?)
    }

    fn ask(&self, line: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
        let token = fs::read_to_string(&self.token_file).map_err(|error| {
            Failure::usage(format_args!("{}: {error}", self.token_file.display()))
        })?;
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let path = self.token_file.display();
            return Err(Failure::usage(format_args!("{path}: it holds no token")));
        }
        let request = Request {
            line,
            headers: &[format!("Authorization: Bearer {token}")],
            body: body.map(|body| ("application/octet-stream", body)),
            patience: Duration::from_secs(self.timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = client::ask(self.http, request)
            .map_err(|error| client::why("mesh node", (self.http, self.timeout), &error))?;
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let detail = told.get("detail").and_then(Value::as_str);
        let status = answer.status;
        Err(Failure::refused(detail.map_or_else(
            || format!("what answers at {} is no mesh node: {status}", self.http),
            |detail| format!("{}: {detail}", self.http),
        )))
    }
}

impl PutConfig {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let envelope = document::sign(document::read(&self.document)?, &self.keys)?;
        if envelope.signers().next().is_none() {
            return Err(Failure::usage(format_args!(
                "{}: nobody signed it; give --key, or sign it before",
                self.document.display()
            )));
        }
        let bytes = document::encode(&envelope);
        show(&self.node.ask("PUT /v1/config", Some(&bytes))?)
    }
}

impl GetConfig {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Some(path) = &self.signed_to else {
            return self.node.show("GET /v1/config");
        };
        let bytes = self.node.ask("GET /v1/config/signed", None)?;
        replace(path, &bytes)
            .map_err(|error| Failure::refused(format_args!("{}: {error}", path.display())))
    }
}

impl AskGraph {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let format = self.format.name();
        self.node.show(&format!("GET /v1/graph?format={format}"))
    }
}

impl AskRoute {
    pub(super) fn run(&self) -> Result<(), Failure> {
        for name in [&self.from, &self.to] {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) {
                let sentence = format!("{name:?} is no name of a node or game, and no id");
                return Err(Failure::usage(sentence));
            }
        }
        let (from, to, format) = (&self.from, &self.to, self.format.name());
        self.node.show(&format!(
            "GET /v1/route?from={from}&to={to}&format={format}"
        ))
    }
}

/// Shows an answer as it is, and ends its last line.
fn show(bytes: &[u8]) -> Result<(), Failure> {
    let fail = |error| Failure::refused(format_args!("the answer cannot be written: {error}"));
    let mut out = io::stdout().lock();
    out.write_all(bytes).map_err(fail)?;
    if !bytes.ends_with(b"\n") {
        out.write_all(b"\n").map_err(fail)?;
    }
    out.flush().map_err(fail)
}

/// A graph of 1,088 nodes in JSON: each pair at most 200 bytes.
const ANSWER_BYTES_MAX: u64 = 128 << 20;
