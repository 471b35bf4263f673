//! What a document means for one node.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use wire::NodeId;

use super::document::Document;
use super::game_rule::{GameRule, Protocol};
use super::proxy_rule::ProxyRule;
use crate::config::{EntryGame, ExitGame, Game};
use crate::link_state::Roles;

/// Why a node does not carry a game that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// It speaks TCP.
    Tcp,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "it speaks TCP, which this node does not carry",
        })
    }
}

impl Document {
    /// Returns the games that `own` may carry in `roles`, opened at an entry on the addresses `listen`:
    /// those over UDP, and those over TCP.
    ///
    /// Who stands at the other end is no part of them: that is asked of the document for each flow, so
    /// that another list ends no flow that it allows too.
    pub(crate) fn carried(
        &self,
        (own, roles): (NodeId, Roles),
        listen: &[IpAddr],
    ) -> (Vec<Game>, Vec<Game>) {
        let (mut over_udp, mut over_tcp) = (Vec::new(), Vec::new());
        for (name, rule) in &self.games {
            let is_entry = roles.contains(Roles::ENTRY) && self.may_enter(name, &own);
            let is_exit = roles.contains(Roles::EXIT) && self.may_exit(name, &own);
            if !is_entry && !is_exit {
                continue;
            }
            let games = match rule.protocol {
                Protocol::Udp => &mut over_udp,
                Protocol::Tcp => &mut over_tcp,
            };
            games.push(Game {
                name: name.clone(),
                mode: rule.mode,
                entry: is_entry.then(|| rule.at_entry(listen)),
                exit: is_exit.then(|| rule.at_exit()),
            });
        }
        (over_udp, over_tcp)
    }
}

impl GameRule {
    fn at_entry(&self, listen: &[IpAddr]) -> EntryGame {
        let ports = self.listen_ports.iter();
        let listen =
            ports.flat_map(|&port| listen.iter().map(move |&ip| SocketAddr::new(ip, port)));
        EntryGame {
            listen: listen.collect(),
            exits: Vec::new(),
        }
    }

    fn at_exit(&self) -> ExitGame {
        ExitGame {
            server: self.server,
            entries: None,
            header: self.proxy_header.as_ref().map(ProxyRule::header),
        }
    }
}
