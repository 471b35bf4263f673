//! The link of a process to the hub, and a game server's lease over it.

pub mod lease;
mod server;

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use crypto::{Identity, TokenKey};
use hub::{JoinFile, NodeConfig, Role};
use matchmaker_core::record::{Assign, Intake, Verdict};
use servicer::{Clock, HubNode, RequestError, StreamHandle};
use wire::{ClientId, InstanceId, MatchId};

use crate::exit::Failure;
use lease::Lease;
pub use lease::{LeaseConfig, LeaseEnd, Offer};
use server::{LinkRequest, ServerApplication};

/// Name of the matchmaker's service in join files.
pub const MATCHMAKER: &str = "matchmaker";

/// A game server, as called by its link. All methods run on the link's thread and must not block;
/// forward their arguments to the game's thread.
pub trait GameServer: Send {
    /// Accepts or rejects a match: reserves its seats for players with a token. Players receive
    /// their tokens when this returns [`Verdict::Taken`]. The link has checked the capacity.
    fn on_assigned(&mut self, assign: &Assign) -> Verdict;

    /// A match was released: no player entered it, and none can, since no token was issued or the
    /// last one has expired.
    fn on_released(&mut self, _match_id: MatchId) {}

    /// The matchmaker knows this instance, its token key and its matches: admit players, also after
    /// [`on_cut_off`](Self::on_cut_off).
    fn on_registered(&mut self) {}

    /// The lease ended while matches are running. They may finish within
    /// [`LeaseConfig::lease_grace`]. Admit no players meanwhile: they may have been seated
    /// elsewhere. Next comes [`on_registered`](Self::on_registered), or
    /// [`on_ended`](Self::on_ended) after the last match.
    ///
    /// If the matchmaker has retired the instance ([`LeaseEnd::Retired`]), it accepts no results,
    /// and those passed to [`GameLink::finished`] are lost.
    fn on_cut_off(&mut self);

    /// Accepts tokens sealed under `key` from now on, in addition to those under earlier keys;
    /// returns whether it does. If so, the matchmaker seals under `key` from now on, and
    /// [`on_token_key_lapsed`](Self::on_token_key_lapsed) follows for the previous one. Called
    /// every [`LeaseConfig::key_rotation`].
    ///
    /// The default returns false, which keeps the key of [`LinkOptions`].
    fn on_token_key(&mut self, _key: &TokenKey) -> bool {
        false
    }

    /// All tokens under the key of this id have expired; stop accepting it.
    fn on_token_key_lapsed(&mut self, _id: u32) {}

    /// The instance must end now: admit no players and end the process.
    fn on_ended(&mut self, end: LeaseEnd);
}

/// Options of a game server's link.
///
/// It holds the token key, so it has no `Debug`.
#[expect(
    missing_debug_implementations,
    reason = "a token key must not be printable"
)]
pub struct LinkOptions<'a> {
    /// Identity of the node; the join file lists it as a game node.
    pub identity: &'a Identity,
    /// The join file.
    pub join_file: &'a JoinFile,
    /// Id of this run; tokens are opened with the same id.
    pub instance: InstanceId,
    /// What the server offers.
    pub offer: Offer,
    /// Key of this instance's tokens; the server already accepts it.
    pub token_key: TokenKey,
    /// Timeouts of the lease.
    pub config: LeaseConfig,
}

/// A game server's link: registers with the matchmaker, renews the lease, and answers calls.
///
/// Dropping it ends the link without notice; the matchmaker retires the instance when its lease
/// expires.
#[derive(Debug)]
pub struct GameLink {
    handle: StreamHandle<LinkRequest>,
    ended: Receiver<LeaseEnd>,
}

impl GameLink {
    /// Starts the link on its own thread. It dials the hub until it is reached, and registers again
    /// after every restart of the hub or the matchmaker.
    ///
    /// # Errors
    ///
    /// One sentence, if the join file names no hub or does not list this node as a game node.
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
        let node = HubNode {
            identity: options.identity,
            join_file: options.join_file,
            instance: options.instance,
        };
        let handle = node.spawn("link", NodeConfig::default(), application)?;
        Ok(Self { handle, ended })
    }

    /// Reports that a player has entered a match. A match without such a report is released when
    /// its last token expires, about 80 s after the assignment; a restarted matchmaker adopts
    /// matches with one.
    ///
    /// # Errors
    ///
    /// [`LinkBusy`] if the link's queue is full or the link has ended, as for the other methods.
    pub fn entered(&self, match_id: MatchId) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Entered(match_id))
    }

    /// Reports that a player has left a match for good and may play elsewhere.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn left(&self, match_id: MatchId, client: ClientId) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Left(match_id, client))
    }

    /// Reports the end of a match; `result` is truncated to 1 KiB. Repeated until the matchmaker
    /// has acknowledged it.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn finished(&self, match_id: MatchId, result: Vec<u8>) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Finished(match_id, result))
    }

    /// Opens or closes the intake of new matches.
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn set_intake(&self, intake: Intake) -> Result<(), LinkBusy> {
        self.request(LinkRequest::Intake(intake))
    }

    /// Registers a token key with a higher id now, outside the rotation. The server already accepts
    /// it, and keeps accepting the previous one until [`GameServer::on_token_key_lapsed`].
    ///
    /// # Errors
    ///
    /// As [`entered`](Self::entered).
    pub fn set_token_key(&self, key: TokenKey) -> Result<(), LinkBusy> {
        self.request(LinkRequest::TokenKey(Box::new(key)))
    }

    /// Waits up to `timeout` for the end of the lease, which is final.
    pub fn wait_end(&self, timeout: Duration) -> Option<LeaseEnd> {
        match self.ended.recv_timeout(timeout) {
            Ok(end) => Some(end),
            Err(RecvTimeoutError::Timeout) => None,
            // Returned before, or the thread has ended: nothing renews the lease.
            Err(RecvTimeoutError::Disconnected) => Some(LeaseEnd::Expired),
        }
    }

    /// Ends in order; the matchmaker is notified within `within` if it is reachable.
    pub fn shutdown(self, within: Duration) {
        self.handle.shutdown(within);
    }

    fn request(&self, request: LinkRequest) -> Result<(), LinkBusy> {
        self.handle.request(request).map_err(|error| match error {
            RequestError::Full(_) | RequestError::Ended(_) => LinkBusy,
        })
    }
}

/// The link's queue is full, or the link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBusy;

wire::error_text! { LinkBusy {
    Self => "the link's queue is full, or the link has ended",
}}
