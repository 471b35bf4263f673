//! `tickwire admin`.

mod document;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs, io};

use clap::{Args, Subcommand, ValueEnum};
use relay_mesh::signed_config::{Import, ImportError};
use serde_json::Value;
use wire::NodeId;

use super::host::HostPort;
use super::print_line;
use crate::exit::{Exit, Failure};
use crate::http::client;
use crate::http::client::Request;
use crate::http::request::percent_encode;
use crate::relay::write_atomic;
pub use document::{CheckedDocument, SignedDocument};

/// Commands of a mesh's admin.
#[derive(Clone, Debug, Subcommand)]
pub enum AdminCommand {
    /// Signs a document, or adds a signature to a signed one; works offline.
    Sign(SignedDocument),
    /// Describes a document, signed or not, or says what is wrong with it.
    Check(CheckedDocument),
    /// Converts a game configuration of `PureGamer` to a document's games.
    ImportGames(ImportedGames),
    /// Sends a signed document to a node; its neighbours fetch it.
    Put(PutConfig),
    /// Prints the document in force.
    Get(GetConfig),
    /// Prints all nodes and links that a node knows.
    Graph(GraphArgs),
    /// Prints the cheapest path between two nodes or to a game, and the paths that flows use now.
    Route(RouteArgs),
    /// Drains a node: it accepts no new players, and other nodes route around it.
    Drain(NodeArgs),
    /// Cancels the drain of a node.
    Undrain(NodeArgs),
    /// Prints a node's counters in Prometheus text format.
    Metrics(NodeArgs),
    /// Checks whether a node is running; needs no token.
    Health(HealthArgs),
}

impl AdminCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Check(check) => check.json,
            Self::Graph(graph) => matches!(graph.format, Format::Json),
            Self::Route(route) => matches!(route.format, Format::Json),
            Self::Sign(_)
            | Self::ImportGames(_)
            | Self::Put(_)
            | Self::Get(_)
            | Self::Drain(_)
            | Self::Undrain(_)
            | Self::Metrics(_)
            | Self::Health(_) => false,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Sign(sign) => sign.run(),
            Self::Check(check) => check.run(),
            Self::ImportGames(import) => import.run(),
            Self::Put(put) => put.run(),
            Self::Get(get) => get.run(),
            Self::Graph(graph) => graph.run(),
            Self::Route(route) => route.run(),
            Self::Drain(args) => args.show("POST /v1/drain"),
            Self::Undrain(args) => args.show("DELETE /v1/drain"),
            Self::Metrics(args) => args.show("GET /metrics"),
            Self::Health(args) => args.show(),
        }
    }
}

/// Address of a node's admin interface.
#[derive(Args, Clone, Debug)]
struct NodeAddress {
    /// Address of its admin interface, as HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    http: HostPort,
    /// Timeout, seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

/// The node to send a request to.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    #[command(flatten)]
    node: NodeAddress,
    /// The node's token file.
    #[arg(long)]
    token_file: PathBuf,
}

/// The node to check.
#[derive(Args, Clone, Debug)]
pub struct HealthArgs {
    #[command(flatten)]
    node: NodeAddress,
    /// Ignored: the check needs no token.
    #[arg(long, hide = true)]
    token_file: Option<PathBuf>,
}

/// Options of `admin put`.
#[derive(Args, Clone, Debug)]
pub struct PutConfig {
    #[command(flatten)]
    node: NodeArgs,
    /// The signed document, or one to be signed now.
    document: PathBuf,
    /// Key file of an admin to sign with now; repeat for each.
    #[arg(long = "key")]
    keys: Vec<PathBuf>,
}

/// Options of `admin get`.
#[derive(Args, Clone, Debug)]
pub struct GetConfig {
    #[command(flatten)]
    node: NodeArgs,
    /// Writes the document with its signatures to this file, as other nodes accept it.
    #[arg(long)]
    signed_to: Option<PathBuf>,
}

/// Options of `admin graph`.
#[derive(Args, Clone, Debug)]
pub struct GraphArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Options of `admin route`.
#[derive(Args, Clone, Debug)]
pub struct RouteArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// A node's id or name.
    from: String,
    /// A node's id or name, or a game's name.
    to: String,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Output format.
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

impl NodeAddress {
    fn send(
        &self,
        line: &str,
        headers: &[String],
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, Failure> {
        let request = Request {
            line,
            headers,
            body: body.map(|body| ("application/octet-stream", body)),
            timeout: Duration::from_secs(self.timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = self.http.send(NODE, request)?;
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let status = answer.status;
        let Some(detail) = body.get("detail").and_then(Value::as_str) else {
            let mut failure = client::wrong_server(NODE, &self.http);
            failure.sentence = format!("{failure}: {status}");
            return Err(failure);
        };
        let exit = match status {
            // The request is not understood, for example by an older node.
            400 | 405 => Exit::Usage,
            // The resource does not exist.
            404 => Exit::CheckFailed,
            408 | 503 => Exit::TimedOut,
            _ => Exit::Refused,
        };
        Err(Failure::new(exit, format_args!("{}: {detail}", self.http)))
    }
}

impl HealthArgs {
    fn show(&self) -> Result<(), Failure> {
        show(&self.node.send("GET /health", &[], None)?)
    }
}

impl NodeArgs {
    fn show(&self, line: &str) -> Result<(), Failure> {
        show(&self.send(line, None)?)
    }

    fn send(&self, line: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
        let fail = |what: &dyn fmt::Display| Failure::file(&self.token_file, what);
        let token = fs::read_to_string(&self.token_file).map_err(|error| fail(&error))?;
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(fail(&"it holds no token"));
        }
        let bearer = format!("Authorization: Bearer {token}");
        self.node.send(line, &[bearer], body)
    }
}

impl PutConfig {
    fn run(&self) -> Result<(), Failure> {
        let envelope = document::sign(document::read(&self.document)?, &self.keys)?;
        if envelope.signers().next().is_none() {
            return Err(Failure::usage(format_args!(
                "{}: it has no signature; use --key, or sign it first",
                self.document.display()
            )));
        }
        let bytes = document::encode(&envelope);
        show(&self.node.send("PUT /v1/config", Some(&bytes))?)
    }
}

impl GetConfig {
    fn run(&self) -> Result<(), Failure> {
        let Some(path) = &self.signed_to else {
            return self.node.show("GET /v1/config");
        };
        let bytes = self.node.send("GET /v1/config/signed", None)?;
        write_atomic(path, &bytes).map_err(|error| document::not_written(path, &error))
    }
}

impl GraphArgs {
    fn run(&self) -> Result<(), Failure> {
        let format = self.format.name();
        self.node.show(&format!("GET /v1/graph?format={format}"))
    }
}

impl RouteArgs {
    fn run(&self) -> Result<(), Failure> {
        let (from, to) = (percent_encode(&self.from), percent_encode(&self.to));
        let format = self.format.name();
        self.node.show(&format!(
            "GET /v1/route?from={from}&to={to}&format={format}"
        ))
    }
}

/// Prints a response, and ends its last line.
fn show(bytes: &[u8]) -> Result<(), Failure> {
    let fail = |error| Failure::refused(format_args!("the answer cannot be written: {error}"));
    let mut out = io::stdout().lock();
    out.write_all(bytes).map_err(fail)?;
    if !bytes.ends_with(b"\n") {
        out.write_all(b"\n").map_err(fail)?;
    }
    out.flush().map_err(fail)
}

/// A graph of 1,088 nodes in JSON; each pair takes at most 200 bytes.
const ANSWER_BYTES_MAX: u64 = 128 << 20;
const NODE: &str = "mesh node";

/// Options of `admin import-games`.
#[derive(Args, Clone, Debug)]
pub struct ImportedGames {
    /// The game configuration.
    file: PathBuf,
    /// Id here of a node named there, as PEER=NODE; repeat for each in a list.
    #[arg(long = "node", value_name = "PEER=NODE", value_parser = pair::<NodeId>)]
    nodes: Vec<(String, NodeId)>,
    /// Address of a host named there, as NAME=IP; repeat for each.
    #[arg(long = "host", value_name = "NAME=IP", value_parser = pair::<IpAddr>)]
    hosts: Vec<(String, IpAddr)>,
}

impl ImportedGames {
    fn run(&self) -> Result<(), Failure> {
        let fail = |what: &dyn fmt::Display| Failure::file(&self.file, what);
        let bytes = fs::read(&self.file).map_err(|error| fail(&error))?;
        let import = Import {
            nodes: self.nodes.iter().cloned().collect(),
            hosts: self.hosts.iter().cloned().collect(),
        };
        let games = import.games(&bytes).map_err(|error| {
            if let ImportError::Json(error) = &error {
                Failure::text(&self.file, error)
            } else {
                fail(&error)
            }
        })?;
        print_line(&games)
    }
}

fn pair<T: std::str::FromStr>(text: &str) -> Result<(String, T), String>
where
    T::Err: fmt::Display,
{
    let (name, value) = text.split_once('=').ok_or("there is no = in it")?;
    let value = value.parse().map_err(|error: T::Err| error.to_string())?;
    Ok((name.to_owned(), value))
}
