//! Players of nodes that are gone, some at a time.

use wire::{ClientId, ConnectionId, NodeId};

use super::Hub;
use super::claim::Claim;
use super::watch::Key;

/// What is yet to be done for the players of a node: it may have many thousand, so that no turn
/// does it for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    node: NodeId,
    what: Action,
    /// The last player that it was done for.
    after: Option<ClientId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// This link has ended: who was claimed over it is away.
    Unlink(ConnectionId),
    /// The lease has ended: who is not claimed over a link is free.
    Free,
}

impl Sweep {
    pub(super) const fn unlink(node: NodeId, link: ConnectionId) -> Self {
        let what = Action::Unlink(link);
        let after = None;
        Self { node, what, after }
    }

    pub(super) const fn free(node: NodeId) -> Self {
        let what = Action::Free;
        let after = None;
        Self { node, what, after }
    }
}

/// Players that one turn does something for.
const PLAYERS_A_TURN: usize = 2_048;

impl Hub {
    /// Begins a sweep, at once where no other has had its share of this turn. Those of one node are
    /// done in the order in which they were begun.
    pub(super) fn sweep(&mut self, sweep: Sweep) {
        self.sweeps.push_back(sweep);
        if self.next_sweep <= self.now {
            self.run_sweeps();
        }
    }

    /// Goes on with what was begun.
    pub(super) fn run_sweeps(&mut self) {
        let mut left = PLAYERS_A_TURN;
        while left > 0
            && let Some(sweep) = self.sweeps.pop_front()
        {
            let players = self.claims.of_node(sweep.node, sweep.after, left);
            left = left.saturating_sub(players.len().max(1));
            for player in &players {
                self.do_for(*player, sweep.what);
            }
            if let (Some(last), 0) = (players.last(), left) {
                let after = Some(*last);
                self.sweeps.push_front(Sweep { after, ..sweep });
            }
        }
        self.next_sweep = self.now + super::SWEEP_PAUSE;
    }

    /// Returns the link over which a claim is held, where that has not ended.
    pub(super) fn live_link(&self, claim: &Claim) -> Option<ConnectionId> {
        let joined = self.joined.get(&claim.node).copied();
        claim.link.filter(|link| joined == Some(*link))
    }

    fn do_for(&mut self, player: ClientId, what: Action) {
        let Some(claim) = self.claims.get_mut(player) else {
            return;
        };
        match what {
            Action::Unlink(link) if claim.link == Some(link) => {
                claim.link = None;
                self.hungry.remove(&player);
                self.unread.remove(&player);
                self.touch(Key::Player(player));
            }
            Action::Free if claim.link.is_none() => self.remove_claim(player),
            Action::Unlink(_) | Action::Free => {}
        }
    }
}
