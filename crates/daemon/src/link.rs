//! The hub link of a process, and what a game server does over it.

mod application;
mod dial;
pub mod lease;
mod server;

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use crypto::{Identity, TokenKey};
use hub::role::Role;
use hub::{JoinFile, NodeConfig};
use matchmaker_core::record::{Assign, Intake, Verdict};
use servicer::{Clock, RequestError, StreamHandle};
use wire::{ClientId, InstanceId, MatchId};

use crate::exit::Failure;
pub use application::{LinkApplication, Member, attach};
use lease::Lease;
pub use lease::{LeaseConfig, LeaseEnd, Offer};
use server::{LinkRequest, ServerApplication};

/// What the matchmaker serves, as join files name it.
pub const MATCHMAKER: &str = "matchmaker";

/// A game server as its link sees it. All methods run on the link's thread, and none may block:
/// hand what they say to the thread that runs the game.
pub trait GameServer: Send {
    /// Takes a match: keeps its seats and lets in who holds a token for one of them. The players
    /// get their tokens when this returns [`Verdict::Taken`]; the link has counted the seats.
    fn on_assigned(&mut self, assign: &Assign) -> Verdict;

    /// Forgets a match that it has taken: nobody has entered it, and nobody will, since no token
    /// for it was given out or the last one has lapsed.
    fn on_released(&mut self, _match_id: MatchId) {}

    /// The matchmaker knows this instance, its present token key and its matches: let players in,
    /// also where [`on_cut_off`](Self::on_cut_off) came before.
    fn on_registered(&mut self) {}

    /// The lease is over while matches are played. They may come to their end within
    /// [`LeaseConfig::lease_grace`]; let nobody in meanwhile, since whoever is not there may have a
    /// seat elsewhere by now. What follows is [`on_registered`](Self::on_registered), or
    /// [`on_ended`](Self::on_ended) with the last match.
    ///
    /// The end is not always reported: a matchmaker that has given the instance up
    /// ([`LeaseEnd::Retired`]) takes no results of it, so what [`GameLink::finished`] says then is lost.
    fn on_cut_off(&mut self);

    /// Opens tokens that are sealed under `key` too, from now on, beside those under the keys before;
    /// returns whether it does. Where it does, the matchmaker seals under this one from now on, and
    /// [`on_token_key_lapsed`](Self::on_token_key_lapsed) says when the one before is done with.
    /// Comes every [`LeaseConfig::key_rotation`].
    ///
    /// By default it does not, and the key that the link was started with stays.
    fn on_token_key(&mut self, _key: &TokenKey) -> bool {
        false
    }

    /// Opens no token any more that is sealed under the key of this id: all of them have expired.
    fn on_token_key_lapsed(&mut self, _id: u32) {}

    /// The instance must end now: let nobody in any more, and end the process.
    fn on_ended(&mut self, end: LeaseEnd);
}

/// What a game server's link needs.
///
/// It holds the token key, so it has no `Debug`.
#[expect(
    missing_debug_implementations,
    reason = "a token key must not be printable"
)]
pub struct LinkOptions<'a> {
    /// What the link proves; the join file lists it as a game node.
    pub identity: &'a Identity,
    /// Who the hub and the matchmaker are.
    pub join_file: &'a JoinFile,
    /// Which run this is; the same that tokens are opened with.
    pub instance: InstanceId,
    /// What the server offers.
    pub offer: Offer,
    /// What tokens for this instance are sealed under: the server opens with it already.
    pub token_key: TokenKey,
    /// Times.
    pub config: LeaseConfig,
}

/// A game server's link: registered with the matchmaker, its lease renewed, its calls answered.
///
/// Dropping it ends the link without a word; the matchmaker gives the instance up when its lease
/// ends.
#[derive(Debug)]
pub struct GameLink {
    handle: StreamHandle<LinkRequest>,
    ended: Receiver<LeaseEnd>,
}

impl GameLink {
    /// Starts the link on a thread of its own. It dials the hub until it is there, and registers
    /// whenever the hub or the matchmaker comes back.
    ///
    /// # Errors
    ///
    /// One sentence: where the join file names no hub, or does not list this node as a game node.
    pub fn start(
        options: LinkOptions<'_>,
        server: impl GameServer + 'static,
    ) -> Result<Self, Failure> {
        let now = Clock::new().now();
        let node_id = options.identity.node_id();
        if options.join_file.grant(node_id, Role::GameNode).is_none() {
            return Err(Failure::usage(format_args!(
                "the join file does not list node {node_id} as a game-node"
            )));
        }
        let lease = Lease::new(
            options.config,
            options.offer,
            options.instance,
            options.token_key,
            now,
        );
        let matchmakers = options
            .join_file
            .with_role(Role::Matchmaker)
            .map(|grant| grant.node)
            .collect();
        let (sender, ended) = crossbeam_channel::bounded(1);
        let application = ServerApplication::new(lease, matchmakers, Box::new(server), sender)?;
        let member = Member {
            identity: options.identity,
            join_file: options.join_file,
            instance: options.instance,
        };
        let handle = attach("link", member, NodeConfig::default(), application)?;
        Ok(Self { handle, ended })
    }

    /// Says that a player has entered a match with a token. A match of which nobody says so is
    /// released when its last token has lapsed, some 80 s after it was assigned; and should the
    /// matchmaker restart, it takes on those of which somebody did.
    ///
    /// # Errors
    ///
    /// [`LinkBusy`] where the link is behind or has ended; so do the others.
    pub fn entered(&self, match_id: MatchId) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Entered(match_id))
    }

    /// Says that a player has left a match for good, and may play elsewhere.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn left(&self, match_id: MatchId, client: ClientId) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Left(match_id, client))
    }

    /// Says that a match is over; what is past 1 KiB of `result` is cut off. Said again until the
    /// matchmaker has noted it.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn finished(&self, match_id: MatchId, result: Vec<u8>) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Finished(match_id, result))
    }

    /// Says whether to be given further matches.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn set_intake(&self, intake: Intake) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Intake(intake))
    }

    /// Registers another token key, whose id is higher, out of turn; the server opens with it
    /// already, and with the one before until [`GameServer::on_token_key_lapsed`] names it.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn set_token_key(&self, key: TokenKey) -> Result<(), LinkBusy> {
        self.request(LinkRequest::TokenKey(Box::new(key)))
    }

    /// Waits up to `timeout` for the end of the lease. Once it has come, it is the answer for
    /// ever.
    pub fn wait_end(&self, timeout: Duration) -> Option<LeaseEnd> {
        match self.ended.recv_timeout(timeout) {
            Ok(end) => Some(end),
            Err(RecvTimeoutError::Timeout) => None,
            // Told before, or the thread is gone: either way nothing renews the lease.
            Err(RecvTimeoutError::Disconnected) => Some(LeaseEnd::Expired),
        }
    }

    /// Ends in order: the matchmaker is notified within `within`, if it is reachable.
    pub fn shutdown(self, within: Duration) {
        self.handle.shutdown(within);
    }

    fn request(&self, request: LinkRequest) -> Result<(), LinkBusy> {
        self.handle.request(request).map_err(|error| match error {
            RequestError::Full(_) | RequestError::Ended(_) => LinkBusy,
        })
    }
}

/// The link is behind, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBusy;

impl std::fmt::Display for LinkBusy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the link to the hub is behind, or has ended")
    }
}

impl std::error::Error for LinkBusy {}
