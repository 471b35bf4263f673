//! Keys as a `WebSocket` shows them: a snapshot that is read page by page, then each change.
//!
//! The client's speed sets that of the snapshot, so it needs no queue. The watch of the hub begins at
//! the revision before the first page: it reports each change that a page may have missed.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use hub::KvAnswer;
use hub::kv::{KvChange, KvKey, KvPrefix, KvRange, Revision};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch::{Receiver, Sender};

use super::key_feed::{KeyFeed, KeyNews};
use super::kv;
use super::link::{KvCall, LinkRequest};
use super::parameter::Parameters;
use super::shared::{Shared, too_many_watches};
use super::watch::{Backlog, WatchEnd, complete_text, reset_text};
use crate::http::error_response::ErrorResponse;

/// Entries of one page, and changes sent at once.
const PAGE: u16 = 256;

/// Snapshots of one `WebSocket`, at most. A client that needs more reads too slowly.
const SNAPSHOTS_MAX: u32 = 4;

pub(super) struct KeyWatch {
    shared: Arc<Shared>,
    prefix: KvPrefix,
    stage: Stage,
    snapshots: u32,
    changes: Receiver<u64>,
    /// The other end of `changes` while there is no feed.
    _unused: Sender<u64>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stage {
    Begin,
    /// The rest of the keys, and the revision from which the watch begins.
    Snapshot(KvRange, Revision),
    Live(Arc<KeyFeed>),
}

impl KeyWatch {
    /// Begins a watch after a revision, or with a snapshot.
    pub(super) async fn begin(
        shared: &Arc<Shared>,
        parameters: &Parameters,
    ) -> Result<Self, ErrorResponse> {
        let from: Option<u64> = parameters.parsed("from", "a revision of a key")?;
        let prefix = KvPrefix::new(parameters.text("prefix").unwrap_or_default());
        let prefix = prefix.map_err(|error| ErrorResponse::bad("bad_key", error.to_string()))?;
        let permit = Arc::clone(&shared.key_watches).try_acquire_owned();
        let unused = Sender::new(0);
        let mut watch = Self {
            shared: Arc::clone(shared),
            prefix,
            stage: Stage::Begin,
            snapshots: 0,
            changes: unused.subscribe(),
            _unused: unused,
            _permit: permit.map_err(|_| too_many_watches())?,
        };
        if let Some(from) = from {
            watch.subscribe(Revision(from)).await?;
        }
        Ok(watch)
    }

    pub(super) const fn changes(&mut self) -> &mut Receiver<u64> {
        &mut self.changes
    }

    async fn subscribe(&mut self, from: Revision) -> Result<(), ErrorResponse> {
        let prefix = self.prefix.clone();
        let watch = |answer| LinkRequest::Watch(prefix, from, answer);
        let feed = self.shared.send(watch).await?;
        self.changes = feed.arrivals();
        self.stage = Stage::Live(feed);
        Ok(())
    }

    /// Returns the next messages; none if there is nothing new.
    pub(super) async fn next(&mut self) -> Result<(Vec<String>, Backlog), WatchEnd> {
        self.changes.borrow_and_update();
        if let Stage::Live(feed) = &self.stage {
            let news = feed.take(usize::from(PAGE)).ok_or(WatchEnd::Behind)?;
            return Ok(self.on_news(&news));
        }
        let read = match &self.stage {
            Stage::Snapshot(rest, revision) => {
                let (rest, revision) = (rest.clone(), *revision);
                self.read_page(rest, revision).await
            }
            Stage::Begin | Stage::Live(_) => self.begin_snapshot().await,
        };
        let texts = read.map_err(|_| WatchEnd::Unavailable)?;
        if self.snapshots > SNAPSHOTS_MAX {
            return Err(WatchEnd::Behind);
        }
        Ok((texts, Backlog::More))
    }

    fn on_news(&mut self, news: &[KeyNews]) -> (Vec<String>, Backlog) {
        let mut texts = Vec::new();
        for news in news {
            match news {
                KeyNews::Changed(change) => texts.push(change_text(change)),
                KeyNews::Complete(revision) => texts.push(complete_text(&revision.0.to_string())),
                KeyNews::Reset => {
                    // What follows is a snapshot at the hub's speed; read one instead.
                    self.stage = Stage::Begin;
                    return (texts, Backlog::More);
                }
            }
        }
        let is_empty = texts.is_empty();
        let backlog = if is_empty {
            Backlog::None
        } else {
            Backlog::More
        };
        (texts, backlog)
    }

    async fn begin_snapshot(&mut self) -> Result<Vec<String>, ErrorResponse> {
        self.snapshots = self.snapshots.saturating_add(1);
        // Answered once the hub has read its keys from the disk.
        kv::call(&self.shared, KvCall::Range(KvRange::all(), 1)).await?;
        let revision = self.shared.kv_revision().await?;
        self.stage = Stage::Snapshot(KvRange::prefix(&self.prefix), revision);
        Ok(vec![reset_text()])
    }

    async fn read_page(
        &mut self,
        rest: KvRange,
        revision: Revision,
    ) -> Result<Vec<String>, ErrorResponse> {
        let read = KvCall::Range(rest.clone(), PAGE);
        let KvAnswer::Page { entries, more } = kv::call(&self.shared, read).await? else {
            return Err(crate::hub_client::HubFault::Down.into());
        };
        let texts = entries.iter().map(|entry| {
            let value = Some(&entry.value.0[..]);
            key_text(&entry.key, entry.revision, value)
        });
        let texts = texts.collect();
        match entries.last().filter(|_| more) {
            Some(last) => self.stage = Stage::Snapshot(rest.after(&last.key), revision),
            None => self.subscribe(revision).await?,
        }
        Ok(texts)
    }
}

fn change_text(change: &KvChange) -> String {
    let value = change.value.as_ref().map(|(value, _)| &value.0[..]);
    key_text(&change.key, change.revision, value)
}

fn key_text(key: &KvKey, revision: Revision, value: Option<&[u8]>) -> String {
    json!({
        "event": "key",
        "key": key.as_str(),
        "revision": revision.0.to_string(),
        "value": value.map(Base64::encode_string),
    })
    .to_string()
}
