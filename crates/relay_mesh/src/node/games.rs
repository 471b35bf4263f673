//! The games of a node, which may change while it runs.

use core::net::SocketAddr;

use crypto::Provider;
use wire::Instant;

use super::flow_side::Side;
use super::flow_table::Flow;
use super::{Node, Pending};
use crate::config::Game;
use crate::event::Command;
use crate::flow_message::FlowEnd;

impl<P: Provider> Node<P> {
    /// Returns the games that this node carries, over UDP and TCP: those of its own configuration,
    /// or of the signed document once there is one. All other code gets the games from here.
    pub(super) fn games_in_force(&self) -> impl Iterator<Item = &Game> {
        let games = self.games.iter().filter(|game| **game != NO_GAME);
        #[cfg(feature = "tcp")]
        let games = games.chain(self.tunnels.iter().flat_map(|held| &held.games));
        games
    }

    /// Invalidates everything derived from the games.
    pub(super) const fn on_games_changed(&mut self) {
        self.edges.is_stale = true;
        self.detours.knows_exits = false;
    }

    /// Replaces the games. Unchanged games keep their ports and flows. A changed game keeps the
    /// ports that both versions list. Flows end if their side of the game changed or was removed.
    ///
    /// A game keeps its index, because flows and ports refer to it by index. The index of a removed
    /// game is reused.
    pub(super) fn set_games(&mut self, now: Instant, games: Vec<Game>) {
        let mut coming = games;
        self.on_games_changed();
        for index in 0..self.games.len() {
            let Some(old) = self.games.get(index) else {
                continue;
            };
            let same = coming.iter().position(|game| game.name == old.name);
            let new = same.map(|same| coming.swap_remove(same));
            match new {
                Some(new) if new == *old => {}
                Some(new) => self.set_game(now, index, new),
                None if old == &NO_GAME => {}
                None => self.set_game(now, index, NO_GAME),
            }
        }
        coming.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for game in coming {
            let free = self.games.iter().position(|old| *old == NO_GAME);
            let index = free.unwrap_or(self.games.len());
            if free.is_none() {
                self.games.push(NO_GAME);
            }
            self.set_game(now, index, game);
        }
    }

    /// Changes the server of a game. Returns false if its current server is not `old`.
    pub(super) fn replace_server(
        &mut self,
        now: Instant,
        name: &str,
        (old, new): (SocketAddr, SocketAddr),
    ) -> bool {
        let mut games = self.games.iter();
        let Some(index) = games.position(|game| game.name == name) else {
            return false;
        };
        let mut game = self.games.get(index).cloned();
        let exit = game.as_mut().and_then(|game| game.exit.as_mut());
        let Some(exit) = exit.filter(|exit| exit.server == old) else {
            return false;
        };
        exit.server = new;
        self.on_games_changed();
        if let Some(game) = game {
            self.set_game(now, index, game);
        }
        true
    }

    fn set_game(&mut self, now: Instant, index: usize, new: Game) {
        let Some(old) = self.games.get(index) else {
            return;
        };
        let has_other_mode = old.mode != new.mode;
        let (entry, exit) = (
            has_other_mode || old.entry != new.entry,
            // A flow's mode is set by its entry, so a changed mode does not affect the exit.
            old.exit != new.exit,
        );
        let is_of_it = |flow: &Flow<P::Aead>| match flow.side {
            Side::Entry { .. } => flow.game == index && entry,
            Side::Exit { .. } => flow.game == index && exit,
            Side::Here { .. } => flow.game == index && (entry || exit),
            #[cfg(feature = "tcp")]
            Side::Tunnel(_) => false,
        };
        let flows = self.flows.iter().filter(|(_, flow)| is_of_it(flow));
        let flows: Vec<u32> = flows.map(|(flow, _)| flow).collect();
        // Done before the game's name changes: the close events contain it.
        for flow in flows {
            self.close_flow(now, flow, FlowEnd::Local);
        }
        let listen = new.entry.as_ref().map_or(&[][..], |entry| &entry.listen);
        for socket in self.ports.set(now, index, listen) {
            self.command(Command::Close { socket }, Pending::Close);
        }
        if let Some(game) = self.games.get_mut(index) {
            *game = new;
        }
    }
}

/// An unused index. A signed document has no game with an empty name.
const NO_GAME: Game = Game {
    name: String::new(),
    mode: crate::config::Mode::Shadow,
    entry: None,
    exit: None,
};
