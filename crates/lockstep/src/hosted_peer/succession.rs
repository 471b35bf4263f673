//! Elections and takeover; agreement is reached by [`View`].
//!
//! [`View`]: crate::view::View

use core::time::Duration;

use wire::{Instant, Seat};

use super::machine::Due;
use super::{HostedClose, HostedEvent, HostedPeer, SELF, State};
use crate::config::StartPolicy;
use crate::event::{LeaveReason, Phase};
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::message::{Bundles, Decision, Seats, Statement, Ticks, bit, pick_seat, seats_in};
use crate::repeat::LEAVE_COPIES;
use crate::tick::{PeerId, Tick};
use crate::view::DecisionOutcome;

/// Presences per `host_timeout`: four, so that one lost is no silence. In an election, which sends
/// more often, a member silent for one such interval may be gone.
const HEARTBEATS: u32 = 4;

const REPEAT_INTERVAL: Duration = Duration::from_millis(40);

impl<I: Input> HostedPeer<I> {
    /// Starts an election if the players that do not receive the host are enough for a view.
    pub(super) fn start_election(&mut self, now: Instant) {
        if self.state != State::Playing || self.is_host() || !self.host_suspected {
            return;
        }
        let others = self.others() & !bit(self.host.0);
        let doubtful = self.filter_seats(others, |link| link.suspects_host(now)) | bit(self.seat.0);
        if self.view.is_enough(doubtful) && self.view.suspect(bit(self.host.0)) {
            self.on_host_suspected(now);
        }
    }

    pub(super) fn on_host_suspected(&mut self, now: Instant) {
        if self.view.is_too_few() {
            if self.is_host() {
                // Players that still receive us need not wait for our silence.
                self.step_down(now, HostedClose::TooFew);
            } else {
                self.close(HostedClose::TooFew);
            }
            return;
        }
        if self.view.suspects & bit(self.host.0) != 0
            && matches!(self.state, State::Playing | State::TakingOver { .. })
        {
            self.state = State::Electing { since: now };
            self.push_event(HostedEvent::HostLost { host: self.host });
        }
        self.due.presence = 0;
        self.due.statement = self.others();
        self.heartbeat_at = self.repeat_at(now);
        self.decide(now);
    }

    pub(super) fn suspect(&mut self, now: Instant, seats: Seats) {
        if seats & self.others() != 0 && self.view.suspect(seats) {
            self.on_host_suspected(now);
        }
    }

    pub(super) fn on_statement(
        &mut self,
        now: Instant,
        from: u16,
        epoch: u8,
        statement: &Statement,
    ) {
        if let Some(last) = self.view.last.as_ref()
            && last.members == statement.members
        {
            self.due.decision |= bit(from);
            return;
        }
        if epoch != self.view.epoch || statement.members != self.view.members {
            self.count_view();
            return;
        }
        if let State::Evicted { .. } = self.state {
            return;
        }
        let is_against_us = statement.suspects & bit(self.seat.0) != 0;
        if is_against_us && (self.is_host() || from == self.host.0) {
            self.on_evicted(now);
            return;
        }
        let host = usize::from(self.host.0);
        let held = statement.held.get(host).copied().unwrap_or_default();
        if let Some(link) = self.link_mut(from) {
            link.held = held;
        }
        // Enough players did not receive the host before any of them stated that.
        let heartbeat_interval = self.heartbeat_interval();
        let alive = self.filter_seats(self.others(), |link| {
            !link.is_silent(now, heartbeat_interval)
        });
        if self
            .view
            .on_statement(from, statement, alive & !bit(self.host.0))
        {
            self.on_host_suspected(now);
        } else {
            self.decide(now);
        }
    }

    pub(super) fn on_decision(&mut self, now: Instant, from: u16, epoch: u8, decision: &Decision) {
        if self.view.last.as_ref() == Some(decision) {
            return;
        }
        let is_next = epoch == self.view.epoch.saturating_add(1);
        let is_in = decision.next & bit(self.seat.0) != 0;
        let conflicts = epoch == self.view.epoch && self.view.conflicts(decision);
        if (is_in && !is_next) || (epoch <= self.view.epoch && !conflicts) {
            self.count_view();
            return;
        }
        let left = self.view.members & !decision.next;
        match self.view.on_decision(from, decision, &self.held_ends()) {
            DecisionOutcome::Ignored => self.count_view(),
            DecisionOutcome::Out(_) => {
                // The first change of host that we missed.
                let cuts = decision.cuts.iter().zip(0..);
                let cuts = cuts.filter(|(_, seat)| left & bit(*seat) != 0);
                let cut = cuts.map(|(cut, _)| *cut).min().unwrap_or_default();
                let tick = cut.min(self.held_end());
                self.close(HostedClose::Excluded { tick });
            }
            DecisionOutcome::Installed(decision) => self.on_installed(now, &decision),
        }
    }

    /// Waits to learn up to which tick we share the others' history.
    fn on_evicted(&mut self, now: Instant) {
        self.server = None;
        self.state = State::Evicted {
            until: now + self.config.host_timeout.saturating_mul(4),
        };
        self.heartbeat_at = self.repeat_at(now);
    }

    fn decide(&mut self, now: Instant) {
        if let State::Evicted { .. } = self.state {
            return;
        }
        if let Some(decision) = self.view.decide(&self.held_ends()) {
            self.due.decision |= self.others();
            self.on_installed(now, &decision);
        }
    }

    fn on_installed(&mut self, now: Instant, decision: &Decision) {
        let left = decision.members & !decision.next;
        let host = self.host;
        let cut = decision.cuts.get(usize::from(host.0)).copied();
        for seat in seats_in(left) {
            self.on_left(now, seat, decision);
        }
        for link in self.links.iter_mut().flatten() {
            link.reset_silence(now);
        }
        self.host_suspected = false;
        self.due.statement = 0;
        self.heartbeat_at = now;
        if left & bit(host.0) != 0 {
            self.follow_next(now, cut.unwrap_or_default());
        }
        self.resume_if_quorum(now);
        if self.view.suspects != 0 {
            self.on_host_suspected(now);
        }
    }

    fn on_left(&mut self, now: Instant, seat: Seat, decision: &Decision) {
        let cut = decision.cuts.get(usize::from(seat.0)).copied();
        if let Some(slot) = self.cuts.get_mut(usize::from(seat.0)) {
            *slot = cut.unwrap_or_default();
        }
        let peer = self.link(seat.0).map(|link| link.peer);
        if let (Some(server), Some(peer)) = (&mut self.server, peer) {
            // The next view decides whether a tick closes without it.
            server.kick(now, peer);
        }
        let reason = if self.view.leaving & bit(seat.0) == 0 {
            LeaveReason::Removed
        } else {
            LeaveReason::Quit
        };
        self.push_event(HostedEvent::Left { seat, reason });
    }

    fn follow_next(&mut self, now: Instant, next: Tick) {
        let lowest = self.view.members.trailing_zeros();
        self.host = Seat(u16::try_from(lowest).unwrap_or(u16::MAX));
        self.stats.migrations = self.stats.migrations.saturating_add(1);
        let peer = self.link(self.host.0).map_or(SELF, |link| link.peer);
        self.client.migrate(now, peer, next);
        self.push_event(HostedEvent::Migrated {
            host: self.host,
            epoch: self.view.epoch,
            tick: next,
        });
        self.state = State::Playing;
        if self.is_host() {
            self.state = State::TakingOver {
                since: now,
                fetched_at: now,
                next,
            };
            self.take(now);
        }
    }

    /// Ticks of a statement, by seat: for removed players, what was decided. For members, how many
    /// closed ticks we hold if the host is among the suspects, else nothing.
    pub(super) fn held_ends(&self) -> Ticks {
        let held = if self.view.suspects & bit(self.host.0) != 0 {
            self.held_end()
        } else {
            Tick(u32::MAX)
        };
        let mut ticks = self.cuts;
        for (tick, seat) in ticks.iter_mut().zip(0..self.shape.seats) {
            if self.view.members & bit(seat) != 0 {
                *tick = held;
            }
        }
        ticks
    }

    pub(super) fn repeat_at(&mut self, now: Instant) -> Instant {
        now + self.jittered(REPEAT_INTERVAL)
    }

    #[expect(clippy::arithmetic_side_effects, reason = "`HEARTBEATS` is not 0")]
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.config.host_timeout / HEARTBEATS
    }

    pub(super) fn jittered(&mut self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let quarter = nanos / 4;
        let (low, high) = (nanos.saturating_sub(quarter), nanos.saturating_add(quarter));
        Duration::from_nanos(self.generator.between(low, high))
    }

    const fn count_view(&mut self) {
        self.stats.dropped_view = self.stats.dropped_view.saturating_add(1);
    }

    pub(super) fn seat_members(&mut self, now: Instant) {
        let members = self.view.members;
        let links = &self.links;
        let Some(server) = &mut self.server else {
            return;
        };
        for (link, seat) in links.iter().zip(0..) {
            if members & bit(seat) == 0 {
                continue;
            }
            let peer = link.as_ref().map_or(SELF, |link| link.peer);
            let joined = server.join(now, peer, Seat(seat));
            debug_assert!(joined.is_ok(), "each has a number and a seat of its own");
        }
    }

    pub(super) fn take(&mut self, now: Instant) {
        let State::TakingOver {
            mut since,
            fetched_at,
            next,
        } = self.state
        else {
            return;
        };
        if self.server.is_none() {
            if self.held_end() < next {
                let waited = now.saturating_since(fetched_at);
                if waited > self.config.host_timeout.saturating_mul(2) {
                    self.step_down(now, HostedClose::Unserved);
                } else {
                    self.ask();
                }
                return;
            }
            let Some(server) = self.resume(now, next) else {
                self.step_down(now, HostedClose::Unserved);
                return;
            };
            self.server = Some(Box::new(server));
            self.is_held = false;
            self.seat_members(now);
            since = now;
            self.state = State::TakingOver {
                since,
                fetched_at,
                next,
            };
        }
        self.begin_if_ready(now);
        if let State::TakingOver { .. } = self.state
            && now.saturating_since(since) > self.config.player_timeout
        {
            self.close(HostedClose::TooFew);
        }
    }

    /// Starts closing ticks once all remaining players are ready, or enough of them have waited.
    pub(super) fn begin_if_ready(&mut self, now: Instant) {
        let State::TakingOver { since, .. } = self.state else {
            return;
        };
        let is_enough = self.has_quorum(now);
        let Some(server) = &mut self.server else {
            return;
        };
        let is_overdue = now.saturating_since(since) > self.config.half_timeout();
        if is_enough && (is_overdue || server.are_all_ready()) {
            let started = server.start(now);
            debug_assert!(started.is_ok(), "it gathers until then");
            self.state = State::Playing;
        }
    }

    /// Whether enough of the view recently addressed us as their host.
    pub(super) fn has_quorum(&self, now: Instant) -> bool {
        let host_timeout = self.config.host_timeout;
        let following =
            self.filter_seats(self.others(), |link| link.is_following(now, host_timeout));
        self.view.is_enough(following | bit(self.seat.0))
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.is_running() && !self.has_quorum(now)
    }

    pub(super) fn is_running(&self) -> bool {
        self.server()
            .is_some_and(|server| server.phase() == Phase::Running)
    }

    pub(super) fn resume_if_quorum(&mut self, now: Instant) {
        if self.is_paused(now) {
            return;
        }
        self.is_held = false;
        if let Some(server) = &mut self.server {
            server.close_if_complete(now);
        }
    }

    pub(super) fn fetch(&mut self, now: Instant, first: Tick, bundles: &Bundles<'_>) {
        let before = self.held_end();
        let State::TakingOver {
            fetched_at, next, ..
        } = &mut self.state
        else {
            self.stats.dropped_stale = self.stats.dropped_stale.saturating_add(1);
            return;
        };
        self.client.take_closed(now, first, *next, bundles);
        // A useless answer does not trigger the next request.
        if Tick(self.client.ticks_confirmed()) > before {
            *fetched_at = now;
            self.take(now);
        }
    }

    pub(super) fn serve(&mut self, now: Instant) {
        let is_due = self.server_timeout().is_some_and(|at| at <= now);
        if !is_due {
            return;
        }
        let has_quorum = self.has_quorum(now);
        let Some(server) = &mut self.server else {
            return;
        };
        if server.phase() == Phase::Running && !has_quorum {
            self.is_held = true;
            self.stats.holds = self.stats.holds.saturating_add(1);
        } else {
            server.handle_timeout(now);
        }
    }

    pub(super) fn server_timeout(&self) -> Option<Instant> {
        let server = self.server.as_ref().filter(|_| !self.is_held)?;
        server.poll_timeout()
    }

    pub(super) fn on_server_left(&mut self, now: Instant, seat: Seat, reason: LeaveReason) {
        if self.others() & bit(seat.0) == 0 {
            return;
        }
        let is_news = if reason.is_players() {
            self.view.on_leaving(bit(seat.0))
        } else {
            self.view.suspect(bit(seat.0))
        };
        if is_news {
            self.on_host_suspected(now);
        }
    }

    pub(super) fn step_down(&mut self, now: Instant, why: HostedClose) {
        if self.is_over() {
            return;
        }
        self.due = Due::default();
        self.server = None;
        self.events.push_back(HostedEvent::Closed(why));
        self.repeat_leave(now, LEAVE_COPIES, now);
    }

    /// Requests closed ticks from the member that holds most, else from a random one.
    fn ask(&mut self) {
        let others = self.others();
        let end = self.held_end();
        let links = self.links.iter().zip(0..);
        let held = links.filter_map(|(link, seat)| Some((link.as_ref()?.held, seat)));
        let best = held
            .filter(|(held, seat)| others & bit(*seat) != 0 && *held > end)
            .max_by_key(|(held, seat)| (*held, u16::MAX.saturating_sub(*seat)));
        if others == 0 {
            return;
        }
        // Sometimes another one: the best may be gone.
        let any = pick_seat(&mut self.generator, others).map(|seat| seat.0);
        let to = match best {
            Some((_, seat)) if !self.generator.chance(250_000) => Some(seat),
            Some(_) | None => any,
        };
        self.due.ask = to.map_or(0, bit);
    }

    fn resume(&mut self, now: Instant, next: Tick) -> Option<MatchServer<I>> {
        let mut config = self.config.server.clone();
        let seed = self.generator.seed();
        let Some(past) = self.client.past() else {
            if next > Tick(0) {
                return None;
            }
            config.start = StartPolicy::ByHand;
            return MatchServer::new(config, self.match_id, seed, now).ok();
        };
        if past.reader.next != next {
            return None;
        }
        let server = MatchServer::resume(config, (self.match_id, seed), now, &past).ok()?;
        let ours = server.welcome(Some(self.seat));
        (self.client.welcome() == Some(&ours)).then_some(server)
    }

    pub(super) fn is_own(peer: PeerId) -> bool {
        peer == SELF
    }
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    /// When it last sent a datagram, other than a suspicion; initially, when we began.
    received_at: Instant,
    was_received: bool,
    followed_at: Option<Instant>,
    suspected_at: Option<Instant>,
    /// Start of the silence that counts for removal: not before our last pause or change of host.
    awake_at: Instant,
    /// When our last pause ended: silence before does not count.
    woken_at: Instant,
    /// First tick that it lacks, as it stated.
    pub(super) held: Tick,
    pub(super) asked: Option<Tick>,
}

/// Lifetime of a suspicion, which is repeated every 40 ms.
const SUSPICION_TTL: Duration = Duration::from_millis(250);

impl Link {
    pub(super) const fn new(peer: PeerId, now: Instant) -> Self {
        Self {
            peer,
            received_at: now,
            was_received: false,
            followed_at: None,
            suspected_at: None,
            awake_at: now,
            woken_at: now,
            held: Tick(0),
            asked: None,
        }
    }

    pub(super) const fn mark_alive(&mut self, now: Instant) {
        self.received_at = now;
        self.was_received = true;
    }

    pub(super) const fn on_followed(&mut self, now: Instant) {
        self.followed_at = Some(now);
    }

    pub(super) const fn set_suspicion(&mut self, at: Option<Instant>) {
        self.suspected_at = at;
    }

    /// A new host: earlier silence does not count for removal.
    pub(super) const fn reset_silence(&mut self, now: Instant) {
        self.awake_at = now;
        self.suspected_at = None;
    }

    pub(super) const fn on_resumed(&mut self, now: Instant) {
        self.reset_silence(now);
        self.woken_at = now;
    }

    /// Whether it was silent for longer than `timeout`, pauses excluded.
    pub(super) fn is_silent(&self, now: Instant, timeout: Duration) -> bool {
        now.saturating_since(self.received_at.max(self.woken_at)) > timeout
    }

    /// When it counts as lost; twice as late if it never sent a datagram.
    pub(super) fn lost_at(&self, timeout: Duration) -> Instant {
        let timeout = if self.was_received {
            timeout
        } else {
            timeout.saturating_mul(2)
        };
        self.received_at.max(self.awake_at) + timeout
    }

    /// When it is suspected: after `timeout`, or after `first` if it never sent a datagram.
    pub(super) fn suspect_at(&self, timeout: Duration, first: Duration) -> Instant {
        let timeout = if self.was_received { timeout } else { first };
        self.received_at.max(self.awake_at) + timeout
    }

    pub(super) fn is_following(&self, now: Instant, timeout: Duration) -> bool {
        self.followed_at
            .is_some_and(|at| now.saturating_since(at) <= timeout)
    }

    pub(super) fn suspects_host(&self, now: Instant) -> bool {
        self.suspected_at
            .is_some_and(|at| now.saturating_since(at) <= SUSPICION_TTL)
    }
}
