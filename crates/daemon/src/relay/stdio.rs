//! Lines on a node process's stdout and stdin: one JSON object each.

use std::net::SocketAddr;

use relay_mesh::signed_config::{Accepted, Protocol};
use relay_mesh::{Draining, Event, FlowEnd, NodeRefusal, RouteCause, TurnedAway};
use serde::{Deserialize, Serialize};
use udp_proto::{CloseCode, ConnectFailure};

use super::emulation::FileLink;
use super::file::NodeName;
use super::machine::Stats;
use super::running::RelayEvent;

/// A line on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessEvent {
    /// The node has started.
    Ready {
        /// Its id.
        node: NodeName,
        /// Address of its mesh socket.
        address: SocketAddr,
    },
    /// A session with a neighbour was established.
    LinkUp {
        /// The neighbour.
        node: NodeName,
        /// Its address.
        address: SocketAddr,
    },
    /// A session with a neighbour ended.
    LinkDown {
        /// The neighbour.
        node: NodeName,
    },
    /// A bootstrap node could not be reached; at most once a minute for each.
    BootstrapFailed {
        /// The node that was dialled.
        node: NodeName,
        /// Its addresses in the file.
        addresses: Vec<SocketAddr>,
        /// The last failure, and what to check.
        why: String,
        /// Failed dials since the last such line.
        attempts: u64,
    },
    /// Other nodes' link requests were refused; at most once a minute for each reason.
    NodesRefused {
        /// The reason.
        reason: NodeRefusal,
        /// Number since the last such line.
        count: u64,
    },
    /// Another node uses a copy of this node's identity file; at most once a minute.
    IdentityInUse {
        /// Records in this node's name that it did not make, since the last such line.
        records: u64,
    },
    /// The node is overloaded; it changes no routes for measurements made meanwhile.
    Overloaded {
        /// Lateness since the last such line, milliseconds.
        late_ms: u64,
        /// Datagrams dropped by its own queues since the last such line.
        dropped: u64,
    },
    /// A neighbour's path carries at most 1,200 bytes; longer datagrams of players are split in
    /// two.
    LinkTooSmall {
        /// The neighbour.
        node: NodeName,
    },
    /// Flows changed their route.
    Route {
        /// The node at the other end.
        #[serde(rename = "far_end")]
        remote_end: NodeName,
        /// The relays in order; empty for a direct route.
        relays: Vec<NodeName>,
        /// The reason.
        cause: RouteCause,
        /// Number of flows.
        flows: usize,
    },
    /// A flow was opened.
    FlowOpened {
        /// The game.
        game: String,
        /// The player's address.
        player: SocketAddr,
        /// The node at the other end.
        #[serde(rename = "far_end")]
        remote_end: NodeName,
    },
    /// A flow was closed.
    FlowClosed {
        /// The game.
        game: String,
        /// The player's address.
        player: SocketAddr,
        /// The reason, in lower case.
        reason: String,
    },
    /// A game's port is open.
    Listening {
        /// The game.
        game: String,
        /// The address.
        address: SocketAddr,
    },
    /// A game's port could not be opened; it is retried.
    ListenFailed {
        /// The game.
        game: String,
        /// The address.
        address: SocketAddr,
    },
    /// Counters, printed for [`ProcessCommand::Stats`] and at the end.
    Stats {
        /// Hop frames sealed and sent, forwarded ones included.
        frames_sealed: u64,
        /// Hop frames dropped, for all reasons.
        frames_dropped: u64,
        /// Datagrams delivered to players and game servers.
        delivered: u64,
        /// Route changes of flows.
        route_changes: u64,
        /// Datagrams received by all sockets.
        datagrams_in: u64,
        /// Bytes received.
        bytes_in: u64,
        /// Datagrams sent by all sockets.
        datagrams_out: u64,
        /// Sockets opened since the start.
        sockets_opened: u64,
    },
    /// A signed document came into force and is being stored.
    ConfigInForce {
        /// Its version.
        version: u64,
        /// Names of added games.
        added: Vec<String>,
        /// Names of removed games.
        removed: Vec<String>,
        /// Names of changed games.
        changed: Vec<String>,
    },
    /// A document came into force that the admin keys of this node's file no longer lead to.
    ConfigAdrift {
        /// Its version.
        version: u64,
    },
    /// A neighbour's document was rejected.
    ConfigRefused {
        /// The neighbour.
        node: NodeName,
        /// The reason, one sentence.
        why: String,
    },
    /// The document in force expired.
    ConfigEnded {
        /// Its version.
        version: u64,
    },
    /// The document in force could not be stored; it is retried every 5 s.
    ConfigNotStored {
        /// Its version.
        version: u64,
        /// The reason, one sentence.
        why: String,
    },
    /// A game of the document in force is not carried here.
    GameLeftOut {
        /// The game.
        game: String,
        /// The reason, one sentence.
        why: String,
    },
    /// A player was rejected because no exit of the game is reachable; at most every 10 s.
    NoExit {
        /// The game.
        game: String,
    },
    /// Players or packets of a game were rejected; at most once a minute for each game and reason.
    TurnedAway {
        /// The game.
        game: String,
        /// The reason.
        reason: TurnedAway,
        /// Number since the last such line.
        count: u64,
    },
    /// An exit refused players of an entry: it does not serve this game, or not for this entry. At
    /// most once a minute for each entry.
    GameRefused {
        /// The entry.
        entry: NodeName,
        /// The game of the last refused player.
        game: String,
        /// Players since the last such line.
        count: u64,
    },
    /// A game's server answers: it did not before, or was probed for the first time.
    ServerReached {
        /// The game.
        game: String,
        /// The game's protocol.
        protocol: Protocol,
    },
    /// A game's server missed three probes in a row; new players use other exits.
    ServerLost {
        /// The game.
        game: String,
        /// The game's protocol.
        protocol: Protocol,
    },
    /// The system does not permit the configured probe of a game's server; the server is not
    /// measured.
    ProbeNotPermitted {
        /// The game.
        game: String,
        /// The game's protocol.
        protocol: Protocol,
    },
    /// A host name of the configuration resolves to a new address, which is now in use.
    AddressChanged {
        /// `name:port`, as in the file.
        host: String,
        /// The new address.
        address: SocketAddr,
    },
    /// The admin interface is open.
    AdminReady {
        /// Its address.
        address: SocketAddr,
    },
    /// The node is draining.
    Draining {
        /// Open flows of its own players and game servers.
        flows: u32,
        /// Labels of other nodes' flows that still carry frames.
        labels: u32,
    },
    /// A line of stdin was not a command.
    BadOrder {
        /// The parse error.
        text: String,
    },
}

/// A line on stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ProcessCommand {
    /// Print the counters.
    Stats,
    /// Start to drain: accept no new players or labels. The process keeps running.
    Drain,
    /// Replace an emulated link.
    Link(FileLink),
}

impl ProcessEvent {
    /// Converts an event of a node; `None` for one that has no line.
    #[must_use]
    pub fn of(event: RelayEvent) -> Option<Self> {
        match event {
            RelayEvent::Event(event) => Self::of_event(event),
            RelayEvent::NotStored { version, why } => Some(Self::ConfigNotStored { version, why }),
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each event")]
    fn of_event(event: Event) -> Option<Self> {
        Some(match event {
            Event::LinkUp { node, address } => Self::LinkUp {
                node: NodeName(node),
                address,
            },
            Event::LinkDown { node } => Self::LinkDown {
                node: NodeName(node),
            },
            Event::LinkTooSmall { node } => Self::LinkTooSmall {
                node: NodeName(node),
            },
            Event::BootstrapFailed {
                node,
                addresses,
                failure,
                attempts,
            } => Self::BootstrapFailed {
                node: NodeName(node),
                addresses,
                why: dial_failure_text(&failure),
                attempts,
            },
            Event::IdentityInUse { records } => Self::IdentityInUse { records },
            Event::NodesRefused { reason, count } => Self::NodesRefused { reason, count },
            Event::Overloaded { late, dropped } => Self::Overloaded {
                late_ms: u64::try_from(late.as_millis()).unwrap_or(u64::MAX),
                dropped,
            },
            Event::RouteChanged {
                remote_end,
                to,
                cause,
                flows,
                ..
            } => Self::Route {
                remote_end: NodeName(remote_end),
                relays: to.relays.into_iter().map(NodeName).collect(),
                cause,
                flows,
            },
            Event::FlowOpened {
                game,
                player,
                remote_end,
            } => Self::FlowOpened {
                game,
                player,
                remote_end: NodeName(remote_end),
            },
            Event::FlowClosed {
                game,
                player,
                reason,
            } => Self::FlowClosed {
                game,
                player,
                reason: name_of(reason),
            },
            Event::Listening { game, address } => Self::Listening { game, address },
            Event::ListenFailed { game, address } => Self::ListenFailed { game, address },
            Event::ConfigAccepted(Accepted {
                version,
                difference,
            }) => Self::ConfigInForce {
                version,
                added: difference.added.into_iter().collect(),
                removed: difference.removed.into_iter().collect(),
                changed: difference.changed.into_iter().collect(),
            },
            Event::ConfigAdrift { version } => Self::ConfigAdrift { version },
            Event::ConfigRefused { node, why } => Self::ConfigRefused {
                node: NodeName(node),
                why: why.to_string(),
            },
            Event::ConfigEnded { version } => Self::ConfigEnded { version },
            Event::GameLeftOut { game, why } => Self::GameLeftOut {
                game,
                why: why.to_string(),
            },
            Event::NoExit { game } => Self::NoExit { game },
            Event::TurnedAway {
                game,
                reason,
                count,
            } => Self::TurnedAway {
                game,
                reason,
                count,
            },
            Event::GameRefused { entry, game, count } => Self::GameRefused {
                entry: NodeName(entry),
                game,
                count,
            },
            Event::ServerReached { game, protocol } => Self::ServerReached { game, protocol },
            Event::ServerLost { game, protocol } => Self::ServerLost { game, protocol },
            Event::ProbeNotPermitted { game, protocol } => {
                Self::ProbeNotPermitted { game, protocol }
            }
            _ => return None,
        })
    }

    pub(super) const fn draining(left: Draining) -> Self {
        Self::Draining {
            flows: left.flows,
            labels: left.labels,
        }
    }

    pub(super) fn stats_of(stats: &Stats) -> Self {
        let frames = &stats.frames;
        Self::Stats {
            frames_sealed: frames.sealed,
            frames_dropped: stats.frames_dropped(),
            delivered: stats.node.delivered,
            route_changes: stats.node.route_changes,
            datagrams_in: stats.driver.datagrams_in,
            bytes_in: stats.driver.bytes_in,
            datagrams_out: stats.driver.datagrams_out,
            sockets_opened: stats.driver.sockets_opened,
        }
    }
}

fn dial_failure_text(failure: &ConnectFailure) -> String {
    let advice = if let ConnectFailure::Timeout = failure {
        "is it up, is the address right, does a firewall pass UDP, and is its network secret the same?"
    } else if let ConnectFailure::NotTheServer { .. } = failure {
        "another node is at that address: is the id right?"
    } else if let ConnectFailure::Refused(CloseCode::PeerIdentity) = failure {
        "that node does not list this one as a member"
    } else {
        return failure.to_string();
    };
    format!("{failure}: {advice}")
}

/// The reason in `flow_closed`.
fn name_of(reason: FlowEnd) -> String {
    if reason == FlowEnd::Evicted {
        return "crowded".to_owned();
    }
    format!("{reason:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_flow_keeps_its_published_reason() {
        assert_eq!(name_of(FlowEnd::Evicted), "crowded");
        assert_eq!(name_of(FlowEnd::SessionLost), "sessionlost");
    }

    #[test]
    fn drains_and_rejections_are_printed_by_name() {
        let path = relay_mesh::routes::Path {
            relays: Vec::new(),
            destination: wire::NodeId([1; 32]),
        };
        let moved = Event::RouteChanged {
            remote_end: wire::NodeId([1; 32]),
            from: None,
            to: path,
            cause: RouteCause::Drained,
            flows: 2,
        };
        let line = |event| {
            let stdio = ProcessEvent::of(RelayEvent::Event(event)).unwrap();
            serde_json::to_value(&stdio).unwrap()
        };
        let moved = line(moved);
        assert_eq!(
            (&moved["event"], &moved["cause"]),
            (&"route".into(), &"drained".into())
        );
        let turned_away = line(Event::TurnedAway {
            game: "doom".to_owned(),
            reason: TurnedAway::TcpNoExit,
            count: 3,
        });
        assert_eq!(turned_away["reason"], "tcp_no_exit");
        let refused = line(Event::GameRefused {
            entry: wire::NodeId([1; 32]),
            game: "dom".to_owned(),
            count: 2,
        });
        let expected = serde_json::json!({
            "event": "game_refused", "entry": "01".repeat(32), "game": "dom", "count": 2,
        });
        assert_eq!(refused, expected);
    }

    #[test]
    fn a_failed_link_is_printed_with_advice() {
        let line = |failure| {
            let failed = Event::BootstrapFailed {
                node: wire::NodeId([1; 32]),
                addresses: vec!["192.0.2.1:17700".parse().unwrap()],
                failure,
                attempts: 4,
            };
            let stdio = ProcessEvent::of(RelayEvent::Event(failed)).unwrap();
            serde_json::to_value(&stdio).unwrap()
        };
        let cases = [
            (ConnectFailure::Timeout, "network secret"),
            (
                ConnectFailure::NotTheServer { rejected: 2 },
                "is the id right?",
            ),
            (
                ConnectFailure::Refused(CloseCode::PeerIdentity),
                "as a member",
            ),
            (ConnectFailure::Version, "no version in common"),
        ];
        for (failure, expected) in cases {
            let line = line(failure);
            assert_eq!(line["event"], "bootstrap_failed");
            assert_eq!(line["addresses"][0], "192.0.2.1:17700");
            assert!(line["why"].as_str().unwrap().contains(expected), "{line}");
        }
        let refused = Event::NodesRefused {
            reason: NodeRefusal::WrongSecret,
            count: 7,
        };
        let refused =
            serde_json::to_value(ProcessEvent::of(RelayEvent::Event(refused)).unwrap()).unwrap();
        let expected = serde_json::json!({
            "event": "nodes_refused", "reason": "wrong_secret", "count": 7,
        });
        assert_eq!(refused, expected);
    }

    #[test]
    fn commands_are_parsed_as_documented() {
        let read = serde_json::from_str::<ProcessCommand>;
        assert_eq!(read(r#"{"order":"stats"}"#).unwrap(), ProcessCommand::Stats);
        let link = read(r#"{"order":"link","remote":"127.0.0.2","delay_ms":9}"#).unwrap();
        let expected = ProcessCommand::Link(FileLink {
            remote: "127.0.0.2".parse().unwrap(),
            delay_ms: 9,
            loss_per_million: 0,
        });
        assert_eq!(link, expected);
        for bad in [r#"{"order":"die"}"#, "7", r#"{"order":"link"}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
