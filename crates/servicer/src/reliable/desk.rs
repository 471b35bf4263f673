//! The machine of a servicer for members.

mod job;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::backlog::{Backlog, Budget};
use super::dest::Dest;
use super::event::{LeaveCause, MemberId};
use super::letter::{Closing, Letter};
use super::mailbox::Mailbox;
use super::news::News;
use job::Job;

/// Passes messages between members and the application, and closes members that read too slowly.
///
/// It stores no messages: each is passed at once to the driver, which queues it for its
/// connections. The machine only tracks the length and age of these queues.
#[derive(Debug)]
pub(super) struct Desk {
    members: BTreeMap<ConnectionId, Member>,
    connections: BTreeMap<MemberId, ConnectionId>,
    /// Members, in the order in which their connections will open.
    expected: VecDeque<(MemberId, Bytes)>,
    jobs: VecDeque<Job>,
    /// Connections to close, with or without a close record.
    closings: VecDeque<(ConnectionId, Option<Closing>)>,
    news: VecDeque<News>,
    mailbox: Mailbox<News>,
    budget: Budget,
    /// When to next check the backlogs' ages, no later than the first age limit.
    check_at: Option<Instant>,
    /// Messages written to sockets, counted per recipient.
    flushed: Arc<AtomicU64>,
    is_shut_down: bool,
}

/// One connection.
#[derive(Debug)]
struct Member {
    id: MemberId,
    backlog: Backlog,
    /// Whether the driver has granted the initial credit.
    has_credit: bool,
    /// Why this end closes the connection, once that is decided.
    cause: Option<LeaveCause>,
}

impl Desk {
    pub(super) const fn new(
        mailbox: Mailbox<News>,
        budget: Budget,
        flushed: Arc<AtomicU64>,
    ) -> Self {
        Self {
            members: BTreeMap::new(),
            connections: BTreeMap::new(),
            expected: VecDeque::new(),
            jobs: VecDeque::new(),
            closings: VecDeque::new(),
            news: VecDeque::new(),
            mailbox,
            budget,
            check_at: None,
            flushed,
            is_shut_down: false,
        }
    }

    /// Assigns the next opened connection to `member`. Its first record is `welcome`.
    pub(super) fn expect(&mut self, member: MemberId, welcome: Bytes) {
        self.expected.push_back((member, welcome));
    }

    /// Sends `payload` to those of `dest` that are members now.
    pub(super) fn send(&mut self, dest: Dest, payload: Bytes) {
        let last = self.members.last_key_value().map(|(id, _)| *id);
        self.jobs.extend(Job::message(dest, payload, last));
    }

    /// Closes a member's connection after all earlier messages are written.
    pub(super) fn dismiss(&mut self, member: MemberId, reason: Bytes) {
        let letter = (Closing::Dismissed, LeaveCause::Dismissed);
        self.jobs.push_back(Job::close(member, letter, reason));
    }

    /// Closes all connections in the same manner.
    pub(super) fn shut_down(&mut self, reason: &Bytes) {
        self.is_shut_down = true;
        let letter = (Closing::ShutDown, LeaveCause::ShutDown);
        for member in self.connections.keys() {
            let job = Job::close(*member, letter, reason.clone());
            self.jobs.push_back(job);
        }
    }

    /// Returns whether further requests must wait for jobs in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.jobs.len() >= JOBS_MAX
    }

    /// Returns whether no member is left, and no event that the application's queue could take.
    pub(super) fn is_drained(&self) -> bool {
        self.jobs.is_empty() && self.members.is_empty()
    }

    /// Returns whether the application's queue has room for members' messages.
    pub(super) fn may_receive(&self) -> bool {
        self.news.len() < NEWS_MAX && (self.news.is_empty() || self.mailbox.has_room())
    }

    /// Writes a record to a connection if it is open and its budget has room. Without room, gives
    /// the member up.
    fn write(
        &mut self,
        (now, id): (Instant, ConnectionId),
        letter: Letter<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let member = self.members.get_mut(&id)?;
        if member.cause.is_some() {
            return None;
        }
        letter.encode(buf);
        if !member.backlog.has_room(buf.len(), &self.budget) {
            buf.clear();
            self.give_up(now, id);
            return None;
        }
        let messages = u64::from(matches!(letter, Letter::Message(_)));
        member.backlog.push(now, buf.len(), messages);
        if self.check_at.is_none() {
            self.check_at = member.backlog.deadline(&self.budget);
        }
        Some(Outbound {
            connection: id,
            close: false,
        })
    }

    /// Writes the close record to a member. It fits in any case.
    fn write_last(
        &mut self,
        (now, id): (Instant, ConnectionId),
        (closing, cause): (Closing, LeaveCause),
        reason: &[u8],
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let member = self.members.get_mut(&id)?;
        if member.cause.is_some() {
            return None;
        }
        member.cause = Some(cause);
        Letter::Closing(closing, reason).encode(buf);
        // The connection closes after this is written, which confirms that all earlier records are.
        member.backlog.push(now, buf.len(), 0);
        if self.check_at.is_none() {
            self.check_at = member.backlog.deadline(&self.budget);
        }
        Some(Outbound {
            connection: id,
            close: false,
        })
    }

    /// Gives up a member that reads too slowly.
    fn give_up(&mut self, now: Instant, id: ConnectionId) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        // A member that is closing has already had its close record.
        let is_leaving = member.cause.is_some();
        if !is_leaving {
            member.cause = Some(LeaveCause::Slow);
            self.news.push_back(News::Slow {
                member: member.id,
                waiting_bytes: member.backlog.bytes(),
                waiting_for: member.backlog.age(now),
            });
        }
        let letter = (!is_leaving).then_some(Closing::Slow);
        self.closings.push_back((id, letter));
    }

    /// Gives up members whose oldest record exceeds the age limit.
    fn check_ages(&mut self, now: Instant) {
        let deadline = |member: &Member| member.backlog.deadline(&self.budget);
        let late: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| deadline(member).is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        self.check_at = self
            .members
            .values()
            .filter_map(deadline)
            .filter(|at| *at > now)
            .min();
        for id in late {
            self.give_up(now, id);
        }
    }
}

/// Maximum jobs taken from the queue at a time, so that records to the same member share a write.
const JOBS_MAX: usize = 64;

/// Number of queued events from which sockets are not read. One read may exceed it.
pub(super) const NEWS_MAX: usize = 256;

/// Event entries that stay allocated, as many as a round of reads usually produces.
const NEWS_KEPT: usize = NEWS_MAX * 4;

impl StreamMachine for Desk {
    type Event = News;
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, connection: ConnectionId, _: &PeerIdentity) {
        let Some((id, welcome)) = self.expected.pop_front() else {
            // Not a member: this driver has no listener.
            self.closings.push_back((connection, None));
            return;
        };
        self.connections.insert(id, connection);
        let member = Member {
            id,
            backlog: Backlog::default(),
            has_credit: false,
            cause: None,
        };
        self.members.insert(connection, member);
        self.jobs.push_back(Job::welcome(connection, welcome));
        if self.is_shut_down {
            self.shut_down(&Bytes::new());
        }
    }

    fn handle_frame(&mut self, _: Instant, connection: ConnectionId, record: &[u8]) {
        let Some(member) = self.members.get_mut(&connection) else {
            return;
        };
        if member.cause.is_some() {
            return;
        }
        if let Some(Letter::Message(payload)) = Letter::decode(record) {
            self.news.push_back(News::Message {
                from: member.id,
                payload: Bytes::copy_from_slice(payload),
            });
        } else {
            member.cause = Some(LeaveCause::Malformed);
            self.closings.push_back((connection, None));
        }
    }

    fn handle_credit(&mut self, _: Instant, connection: ConnectionId, bytes: usize) {
        let Some(member) = self.members.get_mut(&connection) else {
            return;
        };
        if !member.has_credit {
            // The first credit's size is ignored: the budget is smaller.
            member.has_credit = true;
            return;
        }
        let messages = member.backlog.note_written(bytes);
        self.flushed.fetch_add(messages, Ordering::Relaxed);
        if member.backlog.is_empty() && member.cause.is_some() {
            self.closings.push_back((connection, None));
        }
    }

    fn handle_closed(&mut self, _: Instant, connection: ConnectionId, cause: CloseCause) {
        let Some(member) = self.members.remove(&connection) else {
            return;
        };
        self.connections.remove(&member.id);
        let cause = member.cause.unwrap_or(match cause {
            CloseCause::Finished => LeaveCause::Finished,
            CloseCause::Local => LeaveCause::ShutDown,
            CloseCause::Failed | CloseCause::Unreachable | _ => LeaveCause::Lost,
        });
        self.news.push_back(News::Left {
            member: member.id,
            cause,
        });
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        if let Some((connection, letter)) = self.closings.pop_front() {
            if let Some(closing) = letter {
                Letter::Closing(closing, &[]).encode(buf);
            }
            return Some(Outbound {
                connection,
                close: true,
            });
        }
        while let Some(mut job) = self.jobs.pop_front() {
            while let Some(id) = job.next(self) {
                let written = job.write(self, now, id, buf);
                if written.is_some() {
                    self.jobs.push_front(job);
                    return written;
                }
            }
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_ages(now);
        }
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<News> {
        if self.news.is_empty() || !self.mailbox.has_room() {
            return None;
        }
        let news = self.news.pop_front();
        if self.news.is_empty() && self.news.capacity() > NEWS_KEPT {
            self.news.shrink_to(NEWS_KEPT);
        }
        news
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.check_at
    }
}

#[cfg(test)]
mod tests;
