//! The matchmaker: composes queue, matches, leases, pool and mint, and owns no algorithm.

mod matches;
mod servers;

use core::fmt;
use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{NoEntropy, Provider, Ring, UserData};
use wire::{
    Arrival, ClientId, CommandId, Generator, Instant, Machine, MatchId, Seed, Transmit, UnixTime,
};

use crate::command::{Command, Outcome};
use crate::config::{Config, Duplicate, Game};
use crate::error::{CancelError, ReissueError, SubmitError};
use crate::event::Event;
use crate::lease::{ServerLink, Servers};
use crate::match_table::{MatchTable, Phase};
use crate::mint;
use crate::mint::Order;
use crate::outbox::{Outbox, Pending};
use crate::pool::Pool;
use crate::record::RECORD_BYTES_MAX;
use crate::ticket::{Assignment, Ending, Receipt, ResumeKey, TicketId, TicketRequest, TicketState};
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

/// A datagram is the body of a server's call, and what is sent to a [`Caller`] is the reply to that
/// call. A driver that has the caller at hand uses
/// [`handle_call`](Matchmaker::handle_call) instead.
impl<P: Provider> Machine for Matchmaker<P> {
    type Peer = Caller;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Caller>, datagram: &mut [u8]) {
        let mut reply = Vec::new();
        self.handle_call(now, arrival.peer.link, datagram, &mut reply);
        if !self
            .outbox
            .reply(arrival.peer, reply, self.config.replies_max)
        {
            self.stats.replies_dropped = self.stats.replies_dropped.saturating_add(1);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        Self::handle_completed(self, now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        Self::set_unix_time(self, now, unix);
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Caller>> {
        let (caller, reply) = self.outbox.poll_reply()?;
        buf.extend_from_slice(&reply);
        Some(Transmit::to(caller))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        Self::poll_command(self)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }
}

impl<P: Provider> Matchmaker<P> {
    /// Takes a player's wish to play.
    ///
    /// - The same wish again (same player and idempotency key) gives the same receipt, as long as
    ///   its ticket is known: one that has ended is not queued anew by a request that comes late.
    /// - A player in a live match gets back to it: its ticket has a fresh token for its seat.
    /// - Another waiting ticket of the player ends, or the request is refused: [`Duplicate`].
    ///
    /// # Errors
    ///
    /// [`SubmitError`] says why there is no ticket; nothing has changed then.
    pub fn submit(
        &mut self,
        now: Instant,
        request: &TicketRequest,
    ) -> Result<Receipt, SubmitError> {
        let now = self.enter(now);
        let client = request.client_id;
        let before = self.tickets.of_client(client);
        if let Some(receipt) = self.same_wish(request) {
            self.keep_ticket(now, receipt.ticket);
            return Ok(receipt);
        }
        let live = self.matches.of_client(client);
        if live.is_none() {
            self.check_admission(before)?;
        }
        // All that can fail comes first.
        let resume_key = ResumeKey::random(&mut self.provider)?;
        let seat = live
            .map(|match_id| self.issue(now, match_id, client, &request.user))
            .transpose()?;
        if let Some(id) = before {
            self.withdraw(now, id, Ending::Replaced);
        }
        let ticket = self.admit(now, request, resume_key.clone(), seat);
        self.advance(now);
        Ok(Receipt { ticket, resume_key })
    }

    /// Ends a waiting ticket. If its match waits for a server, the other players go back to where
    /// they were in the queue.
    ///
    /// # Errors
    ///
    /// [`CancelError`] where the ticket does not wait.
    pub fn cancel(&mut self, now: Instant, ticket: TicketId) -> Result<(), CancelError> {
        let now = self.enter(now);
        match self.ticket(ticket) {
            None => Err(CancelError::Unknown),
            Some(TicketState::Assigned(_)) => Err(CancelError::Assigned),
            Some(TicketState::Ended(_)) => Err(CancelError::Ended),
            Some(TicketState::Queued | TicketState::Allocating { .. }) => {
                self.withdraw(now, ticket, Ending::Cancelled);
                self.advance(now);
                Ok(())
            }
        }
    }

    /// Notes that the holder of a ticket still asks for it. One that waits ends where nobody has for
    /// [`Config::ask_timeout`](crate::Config::ask_timeout); to others it means nothing.
    pub fn keep_ticket(&mut self, now: Instant, ticket: TicketId) {
        let now = self.enter(now);
        if let Some(entry) = self.tickets.get(ticket)
            && entry.state.is_waiting()
        {
            let due = entry.expires_at.min(now + self.config.ask_timeout);
            self.timers.set(Timer::Ticket(ticket), due);
        }
    }

    /// A ticket has waited as long as it may, or its holder has gone.
    fn on_ticket_due(&mut self, now: Instant, id: TicketId) {
        let expires_at = self.tickets.get(id).map(|ticket| ticket.expires_at);
        let ending = if expires_at.is_some_and(|at| at <= now) {
            Ending::Expired
        } else {
            Ending::Abandoned
        };
        self.withdraw(now, id, ending);
    }

    /// Makes another token for the seat of a ticket, with a pre-shared key of its own: the last one
    /// was used by a connection that is gone, has expired, or was lost. The server takes the newer.
    ///
    /// # Errors
    ///
    /// [`ReissueError`] says why there is none; the ticket is as before then.
    pub fn reissue(&mut self, now: Instant, ticket: TicketId) -> Result<(), ReissueError> {
        let now = self.enter(now);
        let entry = self.tickets.get(ticket).ok_or(ReissueError::Unknown)?;
        let TicketState::Assigned(assignment) = &entry.state else {
            return Err(ReissueError::NotAssigned);
        };
        let (match_id, client, user) = (assignment.match_id, entry.client_id, entry.user.clone());
        let assignment = self.issue(now, match_id, client, &user)?;
        self.set_ticket(now, ticket, TicketState::Assigned(assignment));
        Ok(())
    }

    /// Returns what has become of a ticket; asking again gives the same grant. `None` where it is
    /// unknown, or has ended long ago.
    pub fn ticket(&self, ticket: TicketId) -> Option<&TicketState> {
        self.tickets.get(ticket).map(|ticket| &ticket.state)
    }

    /// Returns whether `key` is the one that the ticket's receipt holds; false for an unknown
    /// ticket. The edge asks before it tells, cancels or reissues anything.
    pub fn is_holder(&self, ticket: TicketId, key: &ResumeKey) -> bool {
        self.tickets
            .get(ticket)
            .is_some_and(|ticket| ticket.resume_key == *key)
    }

    /// Returns the ticket of a player that waits or has a seat.
    pub fn ticket_of(&self, client: ClientId) -> Option<TicketId> {
        self.tickets.of_client(client)
    }

    /// What was answered to the same wish before.
    fn same_wish(&self, request: &TicketRequest) -> Option<Receipt> {
        let id = self
            .tickets
            .of_wish(request.client_id, request.idempotency?)?;
        let ticket = self.tickets.get(id)?;
        Some(Receipt {
            ticket: id,
            resume_key: ticket.resume_key.clone(),
        })
    }

    /// Whether one more ticket may wait, in place of `before` or beside all others.
    const fn check_admission(&self, before: Option<TicketId>) -> Result<(), SubmitError> {
        match (before, self.config.duplicate) {
            (Some(id), Duplicate::Refuse) => Err(SubmitError::Duplicate(id)),
            (None, _) if self.tickets.waiting() >= self.config.tickets_max => {
                Err(SubmitError::Full)
            }
            (Some(_), Duplicate::Replace) | (None, _) => Ok(()),
        }
    }

    /// Adds a ticket, queued or with its seat.
    fn admit(
        &mut self,
        now: Instant,
        request: &TicketRequest,
        resume_key: ResumeKey,
        seat: Option<Assignment>,
    ) -> TicketId {
        let id = loop {
            let id = TicketId(self.generator.next_u64());
            if self.tickets.get(id).is_none() {
                break id;
            }
        };
        let live = seat.as_ref().map(|seat| seat.match_id);
        let ticket = Ticket {
            client_id: request.client_id,
            user: request.user.clone(),
            idempotency: request.idempotency,
            resume_key,
            expires_at: now + self.config.ticket_ttl,
            arrival: self.tickets.queue.arrive(),
            attempts: 0,
            state: seat.map_or(TicketState::Queued, TicketState::Assigned),
        };
        self.tickets.insert(id, ticket);
        self.stats.tickets = self.stats.tickets.saturating_add(1);
        match live.and_then(|match_id| self.matches.get_mut(match_id)) {
            Some(entry) => {
                if let Some(chair) = entry.chair_mut(request.client_id) {
                    chair.ticket = Some(id);
                }
            }
            None => self.keep_ticket(now, id),
        }
        self.event(Event::Ticket(id));
        id
    }

    /// Ends a ticket that waits, or has a seat that another ticket takes over.
    fn withdraw(&mut self, now: Instant, id: TicketId, ending: Ending) {
        let Some(state) = self.ticket(id) else {
            return;
        };
        if let TicketState::Allocating { match_id } = *state {
            self.set_ticket(now, id, TicketState::Ended(ending));
            self.dissolve(now, match_id, None);
        } else if !state.is_ended() {
            self.set_ticket(now, id, TicketState::Ended(ending));
        }
    }

    /// Makes a token for the seat of `client` in a live match.
    fn issue(
        &mut self,
        now: Instant,
        match_id: MatchId,
        client: ClientId,
        user: &UserData,
    ) -> Result<Assignment, ReissueError> {
        let unix = self.unix_time(now).ok_or(ReissueError::NoClock)?;
        let entry = self.matches.get_mut(match_id);
        let entry = entry.ok_or(ReissueError::NotAssigned)?;
        let Some(link) = entry.server() else {
            return Err(ReissueError::NotAssigned);
        };
        let server = self.servers.get(link).ok_or(ReissueError::NotAssigned)?;
        let chair = entry.chair_mut(client).ok_or(ReissueError::NotAssigned)?;
        if chair.next_token_at > now {
            let wait = chair.next_token_at.saturating_since(now);
            return Err(ReissueError::TooSoon(wait));
        }
        let order = Order {
            app_id: self.game.app_id,
            link,
            server,
            match_id,
            seated: chair.seated,
            user,
            issued_at: mint::issue_time(unix, chair.issued_at),
            lifetime: self.config.token_lifetime.get(),
        };
        let assignment =
            mint::mint(&mut self.provider, &order).map_err(|_| ReissueError::NoEntropy)?;
        chair.issued_at = Some(order.issued_at);
        chair.next_token_at = now + self.config.reissue_interval;
        // What a server says a call later was said when the token had lapsed.
        let lapses_at = now + order.lifetime + LAPSE_SLACK + self.config.call_timeout;
        if let Some(entry) = self.matches.get_mut(match_id) {
            entry.enter_until = entry.enter_until.max(lapses_at);
        }
        self.stats.tokens = self.stats.tokens.saturating_add(1);
        Ok(assignment)
    }

    /// Whether the match is live: its players may have tokens.
    fn is_live(&self, match_id: MatchId) -> bool {
        let entry = self.matches.get(match_id);
        entry.is_some_and(|entry| matches!(entry.phase, Phase::Live { .. }))
    }
}

/// How much longer than its lifetime a token may be good, by clocks that differ: it may say that it
/// was issued in the future ([`mint::issue_time`]), and its server's clock may lag behind.
const LAPSE_SLACK: Duration = CLOCK_SKEW.saturating_mul(2);

impl From<ReissueError> for SubmitError {
    fn from(error: ReissueError) -> Self {
        match error {
            ReissueError::TooSoon(wait) => Self::TooSoon(wait),
            ReissueError::NoClock => Self::NoClock,
            // A live match has a server and a chair for each player in it.
            ReissueError::Unknown | ReissueError::NotAssigned | ReissueError::NoEntropy => {
                Self::NoEntropy
            }
        }
    }
}

/// What a matchmaker has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tickets taken.
    pub tickets: u64,
    /// Matches that went live.
    pub matches: u64,
    /// Matches found in the record of an instance that an earlier matchmaker knew.
    pub adopted: u64,
    /// Tokens made.
    pub tokens: u64,
    /// Matches taken apart before they went live, their tickets back in the queue.
    pub dissolved: u64,
    /// Calls that were not understood, from no server of this game, or refused.
    pub calls_refused: u64,
    /// Completions for an unknown id.
    pub completions_stray: u64,
    /// Events thrown away since nobody took them.
    pub events_missed: u64,
    /// Replies thrown away since nobody took them.
    pub replies_dropped: u64,
}
