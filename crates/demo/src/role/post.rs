//! Mail and counts through the hub: one that writes, and one that reads for all players.
//!
//! A mail is the number of it, eight bytes: so a reader can tell one that came before.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crypto::Ring;
use hub::count::CountKey;
use hub::id::MailSeq;
use hub::{Node, NodeConfig, NodeEvent};
use servicer::StreamHandle;
use wire::{ClientId, Instant};

use super::{Failure, Voice};
use crate::keyring;
use crate::message::{MAILS_AT_KILL_MIN, News};
use daemon::link::{self, LinkApplication, Member};
use daemon::trust;

/// Joins the hub as the node `name` of the join file.
pub(super) fn join<A>(
    directory: &Path,
    name: &str,
    application: A,
) -> Result<StreamHandle<A::Request>, Failure>
where
    A: LinkApplication<Request: Send> + Send + 'static,
{
    let member = Member {
        identity: &keyring::identity(directory, name)?,
        join_file: &keyring::join_file(directory)?,
        instance: trust::random_instance(&mut Ring::new())?,
    };
    let handle = link::attach(
        &format!("hub {name}"),
        member,
        NodeConfig::default(),
        application,
    )?;
    Ok(handle)
}

/// Writes to all players in turn.
pub(super) struct Writer {
    readers: Vec<ClientId>,
    /// Mails given to the node, which sends each until it is on the hub's disk.
    sent: u64,
    acknowledged: u64,
    /// Mails to be kept under way, for as long as this holds.
    busy_until: Option<Instant>,
    /// What ticks are counted by.
    key: CountKey,
    /// Ticks counted, and how many of them were said to be on the hub's disk.
    counted: u64,
    counted_told: u64,
    /// When to look whether they are.
    look_at: Option<Instant>,
    voice: Voice,
}

/// What is asked of a writer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write {
    /// One mail to each player.
    Round,
    /// Mails without a pause, for a while.
    Busily,
    /// So many ticks more.
    Count(u64),
}

impl Writer {
    pub(super) fn new(readers: Vec<ClientId>, voice: Voice) -> Result<Self, Failure> {
        Ok(Self {
            readers,
            sent: 0,
            acknowledged: 0,
            busy_until: None,
            key: CountKey::new("ticks".parse()?, &[])?,
            counted: 0,
            counted_told: 0,
            look_at: None,
            voice,
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
        let is_taken = node.mail(now, *reader, body.into(), KEPT).is_ok();
        if is_taken {
            self.sent = self.sent.saturating_add(1);
        }
        is_taken
    }

    /// Keeps mails under way while it is the time for it.
    fn top_up(&mut self, now: Instant, node: &mut Node) {
        if self.busy_until.is_some_and(|until| now >= until) {
            self.busy_until = None;
        }
        while self.busy_until.is_some()
            && u64::try_from(node.mails_waiting()).is_ok_and(|count| count < MAILS_AT_KILL_MIN)
            && self.sent < MAILS_MAX
            && self.write(now, node)
        {}
    }

    fn tell(&self) {
        self.voice.say(News::MailWritten {
            sent: self.sent,
            acknowledged: self.acknowledged,
        });
    }
}

impl LinkApplication for Writer {
    type Request = Write;

    fn apply_request(&mut self, now: Instant, node: &mut Node, ask: Write) -> ControlFlow<()> {
        match ask {
            Write::Round => {
                for _ in 0..self.readers.len() {
                    self.write(now, node);
                }
            }
            Write::Count(ticks) => {
                node.count(self.key.clone(), ticks);
                self.counted = self.counted.saturating_add(ticks);
                self.look_at = Some(now + COUNTED_LOOK);
            }
            Write::Busily => {
                self.busy_until = Some(now + BUSY);
                self.top_up(now, node);
                self.voice.say(News::MailUnderWay {
                    count: node.mails_waiting(),
                });
            }
        }
        self.tell();
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::MailStored(_) = event {
            self.acknowledged = self.acknowledged.saturating_add(1);
            self.top_up(now, node);
            if node.mails_waiting() == 0 {
                self.tell();
            }
        } else if let NodeEvent::MailRefused(_, why) = event {
            self.voice.say(News::Failed {
                reason: format!("the hub refuses a mail: {why:?}"),
            });
        } else if matches!(event, NodeEvent::HubDown) {
            self.busy_until = None;
            self.voice.say(News::HubLost {
                mails_under_way: node.mails_waiting(),
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        if !node.is_counted() {
            self.look_at = Some(now + COUNTED_LOOK);
        } else if self.counted_told != self.counted {
            self.counted_told = self.counted;
            self.voice.say(News::Counted {
                ticks: self.counted,
            });
        }
    }
}

/// Reads for all players, and counts what comes twice.
pub(super) struct Reader {
    players: Vec<ClientId>,
    /// Numbers of the mails that came.
    read: BTreeSet<u64>,
    duplicates: u64,
    voice: Voice,
}

impl Reader {
    pub(super) const fn new(players: Vec<ClientId>, voice: Voice) -> Self {
        Self {
            players,
            read: BTreeSet::new(),
            duplicates: 0,
            voice,
        }
    }
}

impl LinkApplication for Reader {
    /// To say that the players are here.
    type Request = ();

    fn apply_request(&mut self, now: Instant, node: &mut Node, (): ()) -> ControlFlow<()> {
        for player in &self.players {
            let claim = node.claim(now, *player, MailSeq(0), Vec::new().into());
            if let Err(error) = claim {
                self.voice.say(News::Failed {
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
            // Where the claim does not stand any more, the mail comes again.
            node.acknowledge(now, claim, seq);
            self.voice.say(News::MailRead {
                delivered: u64::try_from(self.read.len()).unwrap_or(u64::MAX),
                duplicates: self.duplicates,
            });
        }
    }
}

/// How long the hub keeps a mail for a player who is away.
const KEPT: Duration = Duration::from_secs(3_600);
/// How long the writer is busy, unless the hub goes first.
const BUSY: Duration = Duration::from_secs(5);
/// Mails of one run: 512 for each of eight players.
const MAILS_MAX: u64 = 4_096;
/// How often to look whether all counts are on the hub's disk.
const COUNTED_LOOK: Duration = Duration::from_millis(100);
