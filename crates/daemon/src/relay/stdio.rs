//! What a node's process prints and takes: one JSON object a line.

use std::net::{IpAddr, SocketAddr};

use relay_mesh::signed_config::{Accepted, Protocol};
use relay_mesh::{Draining, Event, FlowEnd, NodeRefusal, RouteCause, TurnedAway};
use serde::{Deserialize, Serialize};
use udp_proto::{CloseCode, ConnectFailure};

use super::client::Stats;
use super::file::NodeName;
use super::running::RelayEvent;

/// One line that the process prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessEvent {
    /// The node runs.
    Ready {
        /// Its id.
        node: NodeName,
        /// Where its mesh socket is bound.
        address: SocketAddr,
    },
    /// A session with a neighbour opened.
    LinkUp {
        /// Who it is.
        node: NodeName,
        /// Where its packets come from.
        address: SocketAddr,
    },
    /// The session with a neighbour ended.
    LinkDown {
        /// Who it was.
        node: NodeName,
    },
    /// A bootstrap node could not be reached; printed once a minute for each.
    BootstrapFailed {
        /// Which node was dialled.
        node: NodeName,
        /// Where the file has it.
        addresses: Vec<SocketAddr>,
        /// Why the last dial failed, and what to look at.
        why: String,
        /// How many dials failed since the last such line.
        attempts: u64,
    },
    /// Nodes asked for a link and were refused; printed once a minute for each reason.
    NodesRefused {
        /// Why.
        reason: NodeRefusal,
        /// How often since the last such line.
        count: u64,
    },
    /// Another node has a copy of this node's identity file; printed once a minute.
    IdentityInUse {
        /// Records of this node that it did not make, since the last such line.
        records: u64,
    },
    /// This node does not keep up: it moves no flows for what it sees meanwhile.
    Overloaded {
        /// How late it ran since it was last told, milliseconds.
        late_ms: u64,
        /// Datagrams that its own queues dropped since.
        dropped: u64,
    },
    /// A neighbour's path carries datagrams of 1,200 bytes only, so that long ones of players travel in two pieces.
    LinkTooSmall {
        /// Who it is.
        node: NodeName,
    },
    /// Flows took another route.
    Route {
        /// Where they go.
        far_end: NodeName,
        /// The relays on the way; empty where the way is direct.
        relays: Vec<NodeName>,
        /// Why.
        cause: RouteCauseName,
        /// How many flows they are.
        flows: usize,
    },
    /// A player's packets are carried.
    FlowOpened {
        /// The game.
        game: String,
        /// Whose.
        player: SocketAddr,
        /// The node at the other end.
        far_end: NodeName,
    },
    /// They no longer are.
    FlowClosed {
        /// The game.
        game: String,
        /// Whose.
        player: SocketAddr,
        /// Why, in lower case.
        reason: String,
    },
    /// A game's port is open.
    Listening {
        /// The game.
        game: String,
        /// Where.
        address: SocketAddr,
    },
    /// A game's port could not be opened; it is tried again.
    ListenFailed {
        /// The game.
        game: String,
        /// Where.
        address: SocketAddr,
    },
    /// Counters, as asked for by [`ProcessCommand::Stats`], and at the end.
    Stats {
        /// Hop frames sealed and sent: passed on, or of own flows.
        frames_sealed: u64,
        /// Hop frames dropped, whatever for.
        frames_dropped: u64,
        /// Datagrams handed to players and game servers.
        delivered: u64,
        /// Times that flows took another route.
        route_changes: u64,
        /// Datagrams received by all sockets.
        datagrams_in: u64,
        /// Bytes in them.
        bytes_in: u64,
        /// Datagrams sent by all sockets.
        datagrams_out: u64,
        /// Sockets opened while the node ran.
        sockets_opened: u64,
    },
    /// A signed document came into force. It is being stored.
    ConfigInForce {
        /// Its version.
        version: u64,
        /// Games that are new, by name.
        added: Vec<String>,
        /// Games that are gone.
        removed: Vec<String>,
        /// Games of which something is different.
        changed: Vec<String>,
    },
    /// A document came into force to which the keys of this node's file do not lead any more.
    ConfigAdrift {
        /// Its version.
        version: u64,
    },
    /// A neighbour's document was refused.
    ConfigRefused {
        /// Whose.
        node: NodeName,
        /// Why, one sentence.
        why: String,
    },
    /// The time of the document in force is over.
    ConfigEnded {
        /// Its version.
        version: u64,
    },
    /// The document in force could not be stored; it is tried again each 5 s.
    ConfigNotStored {
        /// Its version.
        version: u64,
        /// Why, one sentence.
        why: String,
    },
    /// A game of the document in force is not carried here.
    GameLeftOut {
        /// The game.
        game: String,
        /// Why, one sentence.
        why: String,
    },
    /// No exit of a game can be reached, and a player came for it; told at most each 10 s.
    NoExit {
        /// The game.
        game: String,
    },
    /// Players or packets of a game were turned away for one reason; printed once a minute for each game and
    /// reason.
    TurnedAway {
        /// The game.
        game: String,
        /// Why.
        reason: TurnedAway,
        /// How often since the last such line.
        count: u64,
    },
    /// The server of a game answers, which did not, or was not asked before.
    ServerReached {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// The server of a game did not answer three times in a row: new players go out elsewhere.
    ServerLost {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// The system does not permit to measure a game's server as configured; it is not measured.
    ProbeNotPermitted {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// A host name of the configuration has another address, which is used from now on.
    AddressChanged {
        /// The name and the port, as the file has them.
        host: String,
        /// The address.
        address: SocketAddr,
    },
    /// The admin interface answers.
    AdminReady {
        /// Where.
        address: SocketAddr,
    },
    /// The node takes its leave.
    Draining {
        /// Flows of its own players and game servers that still run.
        flows: u32,
        /// Labels of others' flows that still pass frames.
        labels: u32,
    },
    /// A line of the input was no order.
    BadOrder {
        /// What is wrong with it.
        text: String,
    },
}

/// Why flows took another route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouteCauseName {
    /// They had none.
    First,
    /// The old one no longer carried.
    Killed,
    /// The old one had become slow or lossy.
    Degraded,
    /// The new one had been better for long enough.
    Better,
    /// A relay of the old one takes no flows any more.
    Drained,
    /// One that this program has no name for.
    Other,
}

impl From<RouteCause> for RouteCauseName {
    fn from(cause: RouteCause) -> Self {
        match cause {
            RouteCause::First => Self::First,
            RouteCause::Killed => Self::Killed,
            RouteCause::Degraded => Self::Degraded,
            RouteCause::Better => Self::Better,
            RouteCause::Drained => Self::Drained,
            _ => Self::Other,
        }
    }
}

/// One line that the process takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ProcessCommand {
    /// Print the counters.
    Stats,
    /// Take leave: let in no new player and no new label. The process does not end by it.
    Drain,
    /// Change a link of the virtual network, for what leaves to `remote`.
    Link {
        /// The host at the other end.
        remote: IpAddr,
        /// Delay, milliseconds.
        delay_ms: u64,
        /// Loss, in a million.
        #[serde(default)]
        loss_per_million: u32,
    },
}

impl ProcessEvent {
    /// Says what a node tells; `None` for what this program has no line for.
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
                far_end,
                to,
                cause,
                flows,
                ..
            } => Self::Route {
                far_end: NodeName(far_end),
                relays: to.relays.into_iter().map(NodeName).collect(),
                cause: cause.into(),
                flows,
            },
            Event::FlowOpened {
                game,
                player,
                far_end,
            } => Self::FlowOpened {
                game,
                player,
                far_end: NodeName(far_end),
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
            Event::ServerReached { game, protocol } => Self::ServerReached { game, protocol },
            Event::ServerLost { game, protocol } => Self::ServerLost { game, protocol },
            Event::ProbeNotPermitted { game, protocol } => {
                Self::ProbeNotPermitted { game, protocol }
            }
            _ => return None,
        })
    }

    /// Says what a node that drains still carries.
    pub(super) const fn draining(left: Draining) -> Self {
        Self::Draining {
            flows: left.flows,
            labels: left.labels,
        }
    }

    /// Says what a node has counted.
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

/// Says why a bootstrap node was not reached, and what to look at.
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

fn name_of(reason: FlowEnd) -> String {
    format!("{reason:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_and_a_reason_to_turn_away_are_printed_by_their_names() {
        let path = relay_mesh::routes::Path {
            relays: Vec::new(),
            destination: wire::NodeId([1; 32]),
        };
        let moved = Event::RouteChanged {
            far_end: wire::NodeId([1; 32]),
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
    }

    #[test]
    fn a_link_that_does_not_come_about_is_printed_with_what_to_look_at() {
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
    fn orders_are_read_as_documented_and_nothing_else_is() {
        let read = serde_json::from_str::<ProcessCommand>;
        assert_eq!(read(r#"{"order":"stats"}"#).unwrap(), ProcessCommand::Stats);
        let link = read(r#"{"order":"link","remote":"127.0.0.2","delay_ms":9}"#).unwrap();
        let expected = ProcessCommand::Link {
            remote: "127.0.0.2".parse().unwrap(),
            delay_ms: 9,
            loss_per_million: 0,
        };
        assert_eq!(link, expected);
        for bad in [r#"{"order":"die"}"#, "7", r#"{"order":"link"}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
