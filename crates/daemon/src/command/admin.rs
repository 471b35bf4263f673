//! `tickwire admin`.

mod call;
mod document;
mod import;

use clap::Subcommand;

use crate::exit::Failure;
pub use call::{GetConfig, GraphArgs, HealthArgs, NodeArgs, PutConfig, RouteArgs};
pub use document::{CheckedDocument, SignedDocument};
pub use import::ImportedGames;

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
            Self::Check(check) => check.is_json(),
            Self::Graph(graph) => graph.is_json(),
            Self::Route(route) => route.is_json(),
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
