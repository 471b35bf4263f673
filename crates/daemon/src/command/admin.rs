//! `tickwire admin`.

mod call;
mod document;
mod import;

use clap::Subcommand;

use crate::exit::Failure;
pub use call::{AskGraph, AskHealth, AskRoute, Asked, GetConfig, PutConfig};
pub use document::{CheckedDocument, SignedDocument};
pub use import::ImportedGames;

/// What the admin of a mesh does.
#[derive(Clone, Debug, Subcommand)]
pub enum AdminCommand {
    /// Signs a document, or adds a signature to a signed one; needs no network.
    Sign(SignedDocument),
    /// Says what a document, signed or not, is, or what is wrong with it.
    Check(CheckedDocument),
    /// Makes the games of a document out of a game configuration of `PureGamer`.
    ImportGames(ImportedGames),
    /// Gives a node a signed document; its neighbours fetch it.
    Put(PutConfig),
    /// Shows the document in force.
    Get(GetConfig),
    /// Shows all nodes and links that a node knows.
    Graph(AskGraph),
    /// Shows the cheapest path between two nodes, or to a game, and what flows use now.
    Route(AskRoute),
    /// Has a node let in nobody new, and send what it passes on another way.
    Drain(Asked),
    /// Has a draining node serve as before.
    Undrain(Asked),
    /// Shows a node's counters as Prometheus text.
    Metrics(Asked),
    /// Asks whether a node is at work; needs no token.
    Health(AskHealth),
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
            Self::Drain(asked) => asked.show("POST /v1/drain"),
            Self::Undrain(asked) => asked.show("DELETE /v1/drain"),
            Self::Metrics(asked) => asked.show("GET /metrics"),
            Self::Health(asked) => asked.show(),
        }
    }
}
