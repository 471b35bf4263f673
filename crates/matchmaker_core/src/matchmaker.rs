//! The matchmaker: composes queue, matches, leases, pool and mint, and owns no algorithm.

mod application;
mod machine;
mod matches;
mod servers;
mod slots;

use core::fmt;

use crypto::{NoEntropy, Provider, Ring};
use wire::{CommandId, Generator, Instant, Seed, UnixTime};

use crate::command::{Command, Outcome};
use crate::config::{Config, Game};
use crate::event::Event;
use crate::lease::{ServerLink, Servers};
use crate::match_table::MatchTable;
use crate::outbox::{Outbox, Pending};
use crate::pool::Pool;
use crate::record::RECORD_BYTES_MAX;
use crate::stats::Stats;
use crate::ticket::{TicketId, TicketState};
use crate::ticket_table::{Ticket, TicketTable};
use crate::timer::{Timer, Timers};

/// Who calls, and in which call; a reply goes back to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The instance, as its link proves it.
    pub link: ServerLink,
    /// The driver's number of the call.
    pub call: u64,
}

/// Matches players, keeps leases of server instances, and makes connect tokens.
///
/// A sans-IO machine: players' wishes come in by [`submit`](Self::submit) and
/// [`cancel`](Self::cancel), servers' calls by [`handle_call`](Self::handle_call); processes and
/// calls to servers leave as [`Command`]s. One turn of its driver, with `app` for the edge:
///
/// ```text
/// for request in hub.requests() {                      // hub calls first, then timers
///     machine.handle_call(now, request.link, &request.body, &mut reply);
///     hub.answer(request, &reply);
/// }
/// app.apply_requests(&mut machine, now);               // submit, cancel, reissue
/// if machine.poll_timeout().is_some_and(|at| at <= now) { machine.handle_timeout(now); }
/// while let Some((id, command)) = machine.poll_command() { app.on_command(id, command); }
/// while let Some(event) = machine.poll_event() { app.on_event(event); }
/// ```
pub struct Matchmaker<P: Provider = Ring> {
    config: Config,
    game: Game,
    provider: P,
    /// For what others may see: ids, and rests of slots.
    generator: Generator,
    /// The latest time that came in.
    now: Instant,
    /// The wall clock, and when it was that late.
    wall: Option<(Instant, UnixTime)>,
    /// Since when no server can call; its lease is not to blame then.
    cut_since: Option<Instant>,
    /// Instances of an earlier matchmaker had the time to register.
    is_recovered: bool,
    /// Until then an instance may bring matches with it. Later none can have a lease of an earlier
    /// matchmaker, and one that claims players claims what it was never given.
    adopts_until: Instant,
    tickets: TicketTable,
    matches: MatchTable,
    servers: Servers,
    pool: Pool,
    timers: Timers,
    outbox: Outbox,
    stats: Stats,
}

impl<P: Provider> Matchmaker<P> {
    /// Makes a matchmaker that knows no ticket and no server.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] where the provider's source of randomness fails.
    pub fn new(
        config: Config,
        game: Game,
        mut provider: P,
        now: Instant,
    ) -> Result<Self, NoEntropy> {
        let mut seed = [0; 32];
        provider.random(&mut seed)?;
        let mut timers = Timers::default();
        timers.set(Timer::Recovered, now + config.recovery);
        let adopting = config.lease;
        Ok(Self {
            pool: Pool::new(&game.slots, now),
            config,
            game,
            provider,
            generator: Seed(seed).generator(0),
            now,
            wall: None,
            cut_since: None,
            is_recovered: false,
            adopts_until: now + adopting,
            tickets: TicketTable::default(),
            matches: MatchTable::default(),
            servers: Servers::default(),
            timers,
            outbox: Outbox::default(),
            stats: Stats::default(),
        })
    }

    /// Takes the wall clock, for the expiry of tokens alone. Before the first time no match is
    /// made. Call it at the start, and again every few seconds: between two calls the monotonic
    /// clock carries it on.
    pub fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        let now = self.enter(now);
        self.wall = Some((now, unix));
        self.advance(now);
    }

    /// Takes word that no server can call, nor be called, since the matchmaker's own link to them is
    /// down. Until it is up, no lease ends, no match is made or placed, and no process is started.
    ///
    /// A new matchmaker has its link; one that has yet to make it says so by this.
    pub fn handle_link_down(&mut self, now: Instant) {
        let now = self.enter(now);
        self.cut_since.get_or_insert(now);
        self.timers.clear(Timer::Recovered);
    }

    /// Takes word that servers can call again. Leases go on where they stopped, and last for
    /// [`Config::recovery`] at the least, in which servers find the way back; so does the time in
    /// which servers of an earlier matchmaker are taken on. Processes that were started have as long
    /// to register.
    pub fn handle_link_up(&mut self, now: Instant) {
        let now = self.enter(now);
        let Some(since) = self.cut_since.take() else {
            return;
        };
        let recovery = self.config.recovery;
        self.adopts_until += now.saturating_since(since);
        if !self.is_recovered {
            self.timers.set(Timer::Recovered, now + recovery);
        }
        for (link, server) in self.servers.iter_mut() {
            let left = server.lease_until.saturating_since(since);
            server.lease_until = now + left.max(recovery);
            self.timers.set(Timer::Server(link), server.lease_until);
        }
        self.prolong_starts(now);
        self.advance(now);
    }

    /// Runs every timer due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.enter(now);
        if self.timers.next().is_none_or(|at| at > now) {
            return;
        }
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Server(link) => self.on_lease_due(now, link),
                Timer::Match(id) => self.on_match_due(now, id),
                Timer::Slot(slot) => self.on_slot_due(now, slot),
                Timer::Ticket(id) => self.on_ticket_due(now, id),
                Timer::Ended => self.forget_ended(now),
                Timer::Recovered => self.is_recovered = true,
            }
        }
        self.advance(now);
    }

    /// Takes the outcome of a command; an unknown or repeated id is counted and ignored.
    pub fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        let now = self.enter(now);
        match self.outbox.complete(id) {
            Some(Pending::Call(match_id)) => self.on_called(now, match_id, outcome),
            Some(Pending::Spawn(slot)) => self.on_spawned(now, slot, &outcome),
            Some(Pending::Stop(slot)) => self.on_stopped(now, slot, &outcome),
            None => {
                self.stats.completions_stray = self.stats.completions_stray.saturating_add(1);
                return;
            }
        }
        self.advance(now);
    }

    /// Returns the next command for the driver.
    pub fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.outbox.poll_command()
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.poll_event()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns what was counted so far.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns how many tickets wait for players, for a server, and how many tickets are known.
    pub fn load(&self) -> Load {
        Load {
            tickets_queued: self.tickets.queue.len(),
            tickets_waiting: self.tickets.waiting(),
            tickets_known: self.tickets.len(),
            matches: self.matches.len(),
            matches_waiting: self.matches.waiting(),
            players: self.matches.players(),
            servers: self.servers.len(),
        }
    }

    /// Returns the instances with a lease, in the order of their ids.
    pub fn servers(&self) -> impl Iterator<Item = ServerLink> {
        self.servers.iter().map(|(link, _)| link)
    }

    /// Returns about how many bytes it holds, fixed parts and spare room of tables left out: a
    /// bound for what players and servers can make it hold, counted in entries of the largest size.
    pub fn memory_bytes(&self) -> usize {
        const TICKET_BYTES: usize = size_of::<Ticket>() + TICKET_HEAP_BYTES;
        let of = |count: usize, bytes: usize| count.saturating_mul(bytes);
        [
            of(self.tickets.len(), TICKET_BYTES),
            of(self.matches.len(), MATCH_BYTES),
            of(self.matches.players(), CHAIR_BYTES),
            of(self.servers.len(), SERVER_BYTES),
            of(self.timers.len(), TIMER_BYTES),
            of(self.outbox.len(), OUTBOX_BYTES),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Takes a time: one that lies back is a fault of the driver, and the later one is kept.
    fn enter(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "time goes back");
        self.now = self.now.max(now);
        self.now
    }

    /// Does what has become possible: makes matches, places them, starts processes.
    fn advance(&mut self, now: Instant) {
        if self.cut_since.is_some() {
            return;
        }
        self.form(now);
        self.place(now);
        self.staff(now);
    }

    /// The wall clock at `now`.
    fn unix_time(&self, now: Instant) -> Option<UnixTime> {
        self.wall.map(|(at, unix)| unix + now.saturating_since(at))
    }

    /// Changes the state of a ticket and says so.
    fn set_ticket(&mut self, now: Instant, id: TicketId, state: TicketState) {
        if state.is_ended() {
            self.timers.clear(Timer::Ticket(id));
            self.tickets.set(id, state);
            self.tickets.keep_until(now + self.config.ended_kept, id);
            self.forget_ended(now);
        } else {
            self.tickets.set(id, state);
        }
        self.event(Event::Ticket(id));
    }

    fn forget_ended(&mut self, now: Instant) {
        self.tickets.forget(now, self.config.ended_max);
        match self.tickets.forget_at() {
            Some(at) => self.timers.set(Timer::Ended, at),
            None => self.timers.clear(Timer::Ended),
        }
    }

    fn event(&mut self, event: Event) {
        let lost = self.outbox.event(event, self.config.events_max);
        self.stats.events_missed = self.stats.events_missed.saturating_add(lost);
    }
}

impl<P: Provider> fmt::Debug for Matchmaker<P> {
    /// Counts only: it holds keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matchmaker")
            .field("load", &self.load())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// How much a matchmaker has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Tickets that wait for players.
    pub tickets_queued: usize,
    /// Tickets that wait for players or for a server.
    pub tickets_waiting: usize,
    /// Tickets that can be asked for, those that have ended included.
    pub tickets_known: usize,
    /// Matches, live and on their way to a server.
    pub matches: usize,
    /// Matches that no server has room for.
    pub matches_waiting: usize,
    /// Players with a seat in a live match.
    pub players: usize,
    /// Instances with a lease.
    pub servers: usize,
}

/// User data, at most 512 B, a grant, at most 1,679 B, and the ticket's entry by its wish.
const TICKET_HEAP_BYTES: usize = 512 + 1_679 + 64;

/// The match without its chairs.
const MATCH_BYTES: usize = 256;

/// A chair and its player's entry.
const CHAIR_BYTES: usize = 256;

/// Keys, addresses and the ids of 256 matches.
const SERVER_BYTES: usize = 8 * 1_024;

/// A deadline, in both orders.
const TIMER_BYTES: usize = 192;

/// A command to assign a match of 256 players, or a reply.
const OUTBOX_BYTES: usize = 4 * 1_024;

// A result, the longest part of an event, is no longer than that.
const _: () = assert!(OUTBOX_BYTES < RECORD_BYTES_MAX);
