//! Mail and counts through the hub: a writer, and a reader for all players.
//!
//! The body of a mail is its number, eight bytes, so the reader detects duplicates.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crypto::Ring;
use hub::{CountKey, MailSeq, Node, NodeConfig, NodeEvent};
use servicer::{HubApplication, HubNode, StreamHandle};
use wire::{ClientId, Instant};

use super::{EventWriter, Failure};
use crate::keyring;
use crate::message::{ChildEvent, MAILS_AT_KILL_MIN};
use daemon::trust;

/// Joins the hub as the node `name` of the join file.
pub(super) fn join<A>(
    directory: &Path,
    name: &str,
    application: A,
) -> Result<StreamHandle<A::Request>, Failure>
where
    A: HubApplication<Request: Send> + Send + 'static,
{
    let node = HubNode {
        identity: &keyring::identity(directory, name)?,
        join_file: &keyring::join_file(directory)?,
        instance: trust::random_instance(&mut Ring::new())?,
    };
    Ok(node.spawn(&format!("hub {name}"), NodeConfig::default(), application)?)
}

/// Writes to all players in turn.
pub(super) struct Writer {
    readers: Vec<ClientId>,
    /// Mails given to the node. It sends each until the hub has stored it.
    sent: u64,
    acknowledged: u64,
    /// Keeps mails in flight until then.
    burst_until: Option<Instant>,
    key: CountKey,
    /// Ticks counted, and how many of them the hub has stored.
    counted: u64,
    counted_sent: u64,
    check_at: Option<Instant>,
    events: EventWriter,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MailRequest {
    /// One mail to each player.
    Round,
    /// Mails without a pause, for a while.
    Burst,
    /// Adds this many ticks.
    Count(u64),
}

impl Writer {
    pub(super) fn new(readers: Vec<ClientId>, events: EventWriter) -> Result<Self, Failure> {
        Ok(Self {
            readers,
            sent: 0,
            acknowledged: 0,
            burst_until: None,
            key: CountKey::new("ticks".parse()?, &[])?,
            counted: 0,
            counted_sent: 0,
            check_at: None,
            events,
        })
    }

    fn write(&mut self, now: Instant, node: &mut Node) -> bool {
        let count = u64::try_from(self.readers.len()).unwrap_or(1);
        let at = self.sent.checked_rem(count).unwrap_or(0);
        let at = usize::try_from(at).unwrap_or(0);
        let Some(reader) = self.readers.get(at) else {
            return false;
        };
        let body = self.sent.to_be_bytes().to_vec();
        let is_taken = node.mail(now, *reader, body.into(), MAIL_LIFETIME).is_ok();
        if is_taken {
            self.sent = self.sent.saturating_add(1);
        }
        is_taken
    }

    /// Keeps mails in flight until `burst_until`.
    fn top_up(&mut self, now: Instant, node: &mut Node) {
        if self.burst_until.is_some_and(|until| now >= until) {
            self.burst_until = None;
        }
        while self.burst_until.is_some()
            && u64::try_from(node.mails_waiting()).is_ok_and(|count| count < MAILS_AT_KILL_MIN)
            && self.sent < MAILS_MAX
            && self.write(now, node)
        {}
    }

    fn send(&self) {
        self.events.send(ChildEvent::MailWritten {
            sent: self.sent,
            acknowledged: self.acknowledged,
        });
    }
}

impl HubApplication for Writer {
    type Request = MailRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: MailRequest,
    ) -> ControlFlow<()> {
        match request {
            MailRequest::Round => {
                for _ in 0..self.readers.len() {
                    self.write(now, node);
                }
            }
            MailRequest::Count(ticks) => {
                node.count(self.key.clone(), ticks);
                self.counted = self.counted.saturating_add(ticks);
                self.check_at = Some(now + COUNT_CHECK_INTERVAL);
            }
            MailRequest::Burst => {
                self.burst_until = Some(now + BURST_LENGTH);
                self.top_up(now, node);
                self.events.send(ChildEvent::MailUnderWay {
                    count: node.mails_waiting(),
                });
            }
        }
        self.send();
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::MailStored(_) = event {
            self.acknowledged = self.acknowledged.saturating_add(1);
            self.top_up(now, node);
            if node.mails_waiting() == 0 {
                self.send();
            }
        } else if let NodeEvent::MailRefused(_, why) = event {
            self.events.send(ChildEvent::Failed {
                reason: format!("the hub refuses a mail: {why:?}"),
            });
        } else if matches!(event, NodeEvent::HubDown) {
            self.burst_until = None;
            self.events.send(ChildEvent::HubLost {
                mails_under_way: node.mails_waiting(),
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.check_at
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        if self.check_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        if !node.is_counted() {
            self.check_at = Some(now + COUNT_CHECK_INTERVAL);
        } else if self.counted_sent != self.counted {
            self.counted_sent = self.counted;
            self.events.send(ChildEvent::Counted {
                ticks: self.counted,
            });
        }
    }
}

/// Reads for all players, and counts duplicates.
pub(super) struct Reader {
    players: Vec<ClientId>,
    read: BTreeSet<u64>,
    duplicates: u64,
    events: EventWriter,
}

impl Reader {
    pub(super) const fn new(players: Vec<ClientId>, events: EventWriter) -> Self {
        Self {
            players,
            read: BTreeSet::new(),
            duplicates: 0,
            events,
        }
    }
}

impl HubApplication for Reader {
    /// Announces that the players are present.
    type Request = ();

    fn apply_request(&mut self, now: Instant, node: &mut Node, (): ()) -> ControlFlow<()> {
        for player in &self.players {
            let claim = node.claim(now, *player, MailSeq(0), Vec::new().into());
            if let Err(error) = claim {
                self.events.send(ChildEvent::Failed {
                    reason: format!("player {player} cannot be claimed: {error}"),
                });
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::Mail {
            claim, seq, body, ..
        } = event
        {
            let number = body
                .first_chunk()
                .map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
            if !self.read.insert(number) {
                self.duplicates = self.duplicates.saturating_add(1);
            }
            // If the claim has expired, the hub delivers the mail again.
            node.acknowledge(now, claim, seq);
            self.events.send(ChildEvent::MailRead {
                delivered: u64::try_from(self.read.len()).unwrap_or(u64::MAX),
                duplicates: self.duplicates,
            });
        }
    }
}

/// How long the hub keeps a mail for an absent player.
const MAIL_LIFETIME: Duration = Duration::from_secs(3_600);
/// How long the writer is busy, unless the link to the hub is lost earlier.
const BURST_LENGTH: Duration = Duration::from_secs(5);
/// Mails of one run: 512 for each of eight players.
const MAILS_MAX: u64 = 4_096;
const COUNT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
