//! The entry's side: game ports, and players.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::flow_table::{Early, Flow, Side};
use super::{Node, Pending};
use crate::config::Config;
use crate::event::{Command, Event, Outcome};
use crate::flow_message::FlowMessage;
use crate::leg::{Leg, SocketId};
use crate::link::LinkId;
use crate::pieces::Joiner;

/// The ports of all games.
#[derive(Debug)]
pub(super) struct Ports {
    list: Vec<Port>,
}

#[derive(Debug)]
struct Port {
    /// Index into the games of the configuration.
    game: usize,
    address: SocketAddr,
    state: PortState,
    /// Until when new players get no flow.
    refused_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortState {
    /// To be opened from then on.
    Closed(Instant),
    /// The driver was asked.
    Opening,
    Open(SocketId),
}

impl Ports {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        let list = config
            .games
            .iter()
            .enumerate()
            .flat_map(|(game, entry)| {
                let listen = entry.entry.iter().flat_map(|entry| &entry.listen);
                listen.map(move |&address| Port {
                    game,
                    address,
                    state: PortState::Closed(now),
                    refused_until: now,
                })
            })
            .collect();
        Self { list }
    }

    /// Lets a game's new players wait, since its exit refused one.
    pub(super) fn on_refused(&mut self, now: Instant, game: usize) {
        let ports = self.list.iter_mut().filter(|port| port.game == game);
        ports.for_each(|port| port.refused_until = now + REFUSED);
    }

    fn is_refused(&self, now: Instant, game: usize) -> bool {
        self.list
            .iter()
            .any(|port| port.game == game && now < port.refused_until)
    }

    /// The game of a socket.
    fn game(&self, socket: SocketId) -> Option<usize> {
        self.list
            .iter()
            .find(|port| port.state == PortState::Open(socket))
            .map(|port| port.game)
    }
}

impl<P: Provider> Node<P> {
    /// Asks for the ports that are not open.
    pub(super) fn open_ports(&mut self, now: Instant) {
        let mut wanted = Vec::new();
        for (index, port) in self.ports.list.iter_mut().enumerate() {
            if matches!(port.state, PortState::Closed(due) if due <= now) {
                port.state = PortState::Opening;
                wanted.push((index, port.address));
            }
        }
        for (index, address) in wanted {
            self.command(Command::Listen { address }, Pending::Port(index));
        }
    }

    pub(super) fn on_port(&mut self, now: Instant, index: usize, outcome: Outcome) {
        let Some(port) = self.ports.list.get_mut(index) else {
            return;
        };
        let (game, address) = (port.game, port.address);
        let is_open = match outcome {
            Outcome::Opened(socket) => {
                port.state = PortState::Open(socket);
                true
            }
            Outcome::Closed | Outcome::Failed => {
                port.state = PortState::Closed(now + LISTEN_AGAIN);
                false
            }
        };
        let game = self.game_name(game);
        self.tell(if is_open {
            Event::Listening { game, address }
        } else {
            Event::ListenFailed { game, address }
        });
    }

    /// Takes a datagram of a game port or an upstream socket.
    pub(super) fn on_game_datagram(&mut self, now: Instant, leg: Leg, datagram: &[u8]) {
        if let Some(game) = self.ports.game(leg.socket) {
            self.on_player_datagram(now, leg, game, datagram);
        } else {
            self.on_server_datagram(now, leg, datagram);
        }
    }

    /// Hands a datagram to a player, as far as that one's ration goes.
    pub(super) fn deliver_to_player(&mut self, now: Instant, index: u32, datagram: &[u8]) {
        let Some(Side::Entry { leg, standing }) =
            self.flows.get_mut(index).map(|flow| &mut flow.side)
        else {
            return;
        };
        if !self
            .ration
            .allows(now, leg.address, standing, datagram.len())
        {
            self.stats.rationed = self.stats.rationed.saturating_add(1);
            return;
        }
        let leg = *leg;
        self.push_out(leg, datagram);
    }

    /// Takes leave of what was at this end of a flow.
    pub(super) fn leave_side(&mut self, side: &Side) {
        match side {
            Side::Entry { leg, standing } => self.ration.on_end(leg.address, standing),
            Side::Exit {
                socket: Some(socket),
                ..
            } => self.command(Command::Close { socket: *socket }, Pending::Close),
            Side::Exit { socket: None, .. } => {}
        }
    }

    fn on_player_datagram(&mut self, now: Instant, leg: Leg, game: usize, datagram: &[u8]) {
        let known = self.flows.of_player(&leg);
        let Some(index) = known.or_else(|| self.open_flow(now, leg, game)) else {
            self.stats.refused_players = self.stats.refused_players.saturating_add(1);
            return;
        };
        if let Some(Side::Entry { leg, standing }) =
            self.flows.get_mut(index).map(|flow| &mut flow.side)
        {
            self.ration.on_request(leg.address, standing);
        }
        self.carry(now, index, datagram);
    }

    /// Opens a flow for a new player, through the exit that is cheapest to reach.
    fn open_flow(&mut self, now: Instant, leg: Leg, game: usize) -> Option<u32> {
        if self.flows.is_full() || self.ports.is_refused(now, game) {
            return None;
        }
        let far = self.nearest_exit(game)?;
        if !self.ensure_course(now, far) {
            return None;
        }
        let standing = self.ration.admit(now, leg.address)?;
        let (name, mode) = self
            .config
            .games
            .get(game)
            .map(|game| (game.name.clone(), game.mode))?;
        let id = self.courses.get_mut(&far)?.take_flow_id();
        let open = FlowMessage::Open {
            flow: id,
            player: leg.address,
            game: name.clone(),
        };
        let keys = self.flow_keys(far, id);
        let is_sent = keys.is_some() && self.send_flow_message(now, far, &open);
        let Some((sealer, opener)) = keys.filter(|_| is_sent) else {
            self.ration.on_end(leg.address, &standing);
            return None;
        };
        let flow = Flow {
            id,
            far,
            game,
            player: leg.address,
            mode,
            sealer,
            opener,
            joiner: Joiner::new(),
            side: Side::Entry { leg, standing },
            outward: Early::default(),
            inward: Early::default(),
            labels: Vec::new(),
            used: now,
        };
        let index = self.flows.insert(flow).ok()?;
        if let Some(far_end) = self.peers.get(far).map(|peer| peer.node) {
            self.tell(Event::FlowOpened {
                game: name,
                player: leg.address,
                far_end,
            });
        }
        self.is_untended = true;
        Some(index)
    }

    /// The same for all new players until the next beat: routes are dear, and players may be forged.
    fn nearest_exit(&mut self, game: usize) -> Option<LinkId> {
        if let Some(known) = self.nearest.get(&game) {
            return *known;
        }
        let found = self.best_exit(game);
        self.nearest.insert(game, found);
        found
    }

    /// The exit of a game that is cheapest to reach and has a session with us.
    fn best_exit(&mut self, game: usize) -> Option<LinkId> {
        let exits = self.config.games.get(game)?.entry.as_ref()?.exits.clone();
        exits
            .into_iter()
            .filter_map(|exit| {
                let link = self.peers.find(&exit)?;
                self.peers.session(link)?;
                let cost = self.cost_to(exit);
                cost.is_routable().then_some((cost, exit, link))
            })
            .min()
            .map(|(_, _, link)| link)
    }
}

/// Time without new flows after an exit refused one.
const REFUSED: Duration = Duration::from_secs(1);
/// Wait after a port could not be opened.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
