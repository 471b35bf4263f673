//! A player's data: exported in pages, and deleted.
//!
//! It has three parts: mail, keys that begin with the player's prefix, and the records of statistics
//! with the player's number. Records are in a log that is only appended to; they are deleted with their
//! segment, at the end of the log's retention.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use hub::kv::{KvEntry, KvError, KvKey, KvPrefix, KvRange};
use hub::stats::{Number, Sample, StatRecord};
use hub::{Completed, KvAnswer, MailSeq, StoreOp};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use wire::ClientId;

use super::kv;
use super::link::{KvCall, LinkRequest};
use super::mailbox::{self, PAGE_BYTES_MAX};
use super::parameter::{self, Parameters};
use super::shared::{Shared, busy};
use crate::http::error_response::ErrorResponse;
use crate::hub_client::HubFault;

type PlayerPath = Result<Path<String>, PathRejection>;

/// What stands for the player's number in the prefix of its keys.
const PLAYER: &str = "{player}";

/// The prefix of the keys of each player, with `{player}` for its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonPrefix(String);

impl Default for PersonPrefix {
    fn default() -> Self {
        Self("player/{player}/".to_owned())
    }
}

/// Why a text is no [`PersonPrefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersonPrefixError;

impl fmt::Display for PersonPrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected the beginning of a key with one {player} and, after it, a character that is no \
             digit, such as player/{player}/",
        )
    }
}

impl std::error::Error for PersonPrefixError {}

impl FromStr for PersonPrefix {
    type Err = PersonPrefixError;

    fn from_str(text: &str) -> Result<Self, PersonPrefixError> {
        let (before, after) = text.split_once(PLAYER).ok_or(PersonPrefixError)?;
        // Without an end, keys of player 42 would be those of player 4 too.
        let ends = |next: char| !next.is_ascii_digit();
        let prefix = Self(text.to_owned());
        let is_valid = after.starts_with(ends)
            && !before.ends_with(|last: char| last.is_ascii_digit())
            && !after.contains(PLAYER)
            && prefix.of(ClientId(u64::MAX)).is_some();
        is_valid.then_some(prefix).ok_or(PersonPrefixError)
    }
}

impl PersonPrefix {
    fn of(&self, player: ClientId) -> Option<KvPrefix> {
        KvPrefix::new(&self.0.replace(PLAYER, &player.0.to_string())).ok()
    }
}

/// A place in the data of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// After the mail with this number.
    Mail(u64),
    /// After this key.
    Key(Option<KvKey>),
    /// At this place of the raw log.
    Record(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(seq) => write!(f, "mail-{seq}"),
            Self::Key(None) => f.write_str("key-"),
            Self::Key(Some(key)) => write!(f, "key-{}", key.as_str()),
            Self::Record(place) => write!(f, "record-{place}"),
        }
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = text.split_once('-').ok_or(())?;
        match (kind, rest) {
            ("mail", seq) => seq.parse().map(Self::Mail).map_err(|_| ()),
            ("key", "") => Ok(Self::Key(None)),
            ("key", key) => KvKey::new(key)
                .map(|key| Self::Key(Some(key)))
                .map_err(|_| ()),
            ("record", place) => place.parse().map(Self::Record).map_err(|_| ()),
            _ => Err(()),
        }
    }
}

/// A page of the data, and where the next begins.
type Part = (Vec<Value>, Option<Place>);

/// Returns a page of the data of a player.
pub(super) async fn export(
    State(shared): State<Arc<Shared>>,
    player: PlayerPath,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let parameters = Parameters::read(&uri, &["after"])?;
    let place: Option<Place> = parameters.parsed("after", "the next of an export")?;
    let (entries, next) = match place.unwrap_or(Place::Mail(0)) {
        Place::Mail(after) => mails(&shared, player, MailSeq(after)).await?,
        Place::Key(after) => keys(&shared, player, after).await?,
        Place::Record(from) => records(&shared, player, from).await?,
    };
    let next = next.map(|place| place.to_string());
    Ok(Json(json!({"entries": entries, "next": next})))
}

fn entry(kind: &str, mut fields: Value) -> Value {
    if let Value::Object(fields) = &mut fields {
        fields.insert("kind".to_owned(), kind.into());
    }
    fields
}

async fn mails(shared: &Shared, player: ClientId, after: MailSeq) -> Result<Part, ErrorResponse> {
    let read = StoreOp::Read {
        player,
        after,
        bytes_max: PAGE_BYTES_MAX,
        now: shared.unix_time(),
    };
    let Completed::Mails { mails, more } = shared.store(read).await? else {
        return Err(HubFault::Down.into());
    };
    let last = mails.last().filter(|_| more);
    let next = last.map_or(Place::Key(None), |last| Place::Mail(last.seq.0));
    let entries = mails.iter().map(mailbox::mail_json);
    let entries = entries.map(|mail| entry("mail", mail)).collect();
    Ok((entries, Some(next)))
}

/// Keys of one page.
const KEYS_MAX: u16 = 128;

async fn key_page(
    shared: &Shared,
    player: ClientId,
    after: Option<&KvKey>,
) -> Result<(Vec<KvEntry>, bool), ErrorResponse> {
    // A valid prefix is one with every number.
    let prefix = shared.config.person_prefix.of(player);
    let mut range = KvRange::prefix(&prefix.ok_or(HubFault::Down)?);
    if let Some(after) = after {
        range = range.after(after);
    }
    match kv::call(shared, KvCall::Range(range, KEYS_MAX)).await? {
        KvAnswer::Page { entries, more } => Ok((entries, more)),
        KvAnswer::Written { .. } | KvAnswer::Entry(_) | _ => Err(HubFault::Down.into()),
    }
}

async fn keys(
    shared: &Shared,
    player: ClientId,
    after: Option<KvKey>,
) -> Result<Part, ErrorResponse> {
    let (page, more) = key_page(shared, player, after.as_ref()).await?;
    let last = page.last().filter(|_| more).map(|last| last.key.clone());
    let next = last.map_or(Place::Record(0), |last| Place::Key(Some(last)));
    let entries = page.iter().map(kv::entry_json);
    let entries = entries.map(|key| entry("key", key)).collect();
    Ok((entries, Some(next)))
}

/// Records of one page, unless the last batch has more.
const RECORDS_MAX: usize = 512;

async fn records(shared: &Shared, player: ClientId, from: u64) -> Result<Part, ErrorResponse> {
    let read = shared.statistics(move |view| view.player_records(player, from, RECORDS_MAX));
    let part = read.await?.map_err(|error| {
        let detail = format!("the log of statistics cannot be read: {error}");
        busy("statistics_unreadable", detail)
    })?;
    let entries = part.records.iter().map(record_json).collect();
    Ok((entries, part.next.map(Place::Record)))
}

fn record_json(record: &StatRecord) -> Value {
    let dimensions = record.key.dimensions().iter();
    let dimensions = dimensions.map(|(name, text)| (name.to_string(), text.as_str().into()));
    let number = |number: &Number| match number {
        Number::Int(number) => json!(number),
        Number::Float(_) => json!(number.to_f64()),
    };
    let (sample, value) = match &record.sample {
        Sample::Add(value) => ("add", number(value)),
        Sample::Set(value) => ("set", number(value)),
        Sample::State(text) => ("state", text.as_str().into()),
        Sample::Event(value) => ("event", number(value)),
    };
    json!({
        "kind": "record",
        "time": record.time.as_millis(),
        "name": record.key.name().to_string(),
        "dimensions": dimensions.collect::<Map<String, Value>>(),
        "sample": sample,
        "value": value,
    })
}

/// Pages of keys that one request deletes.
const DELETED_PAGES_MAX: usize = 16;

/// Deletes the mail and the keys of a player; answers once that is on disk.
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    player: PlayerPath,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let Completed::Cleared { count } = shared.store(StoreOp::Clear { player }).await? else {
        return Err(HubFault::Down.into());
    };
    let mut deleted = 0_u64;
    let mut more = true;
    for _ in 0..DELETED_PAGES_MAX {
        let (page, has_more) = key_page(&shared, player, None).await?;
        deleted = deleted.saturating_add(delete_keys(&shared, page).await?);
        more = has_more;
        if !more {
            break;
        }
    }
    let now = shared.hub.statistics().unix_time();
    let end = shared.statistics(move |view| view.raw_end(now)).await?;
    Ok(Json(json!({
        "mails": count,
        "keys": deleted,
        "more": more,
        "records_until": end.as_secs(),
    })))
}

async fn delete_keys(shared: &Arc<Shared>, page: Vec<KvEntry>) -> Result<u64, ErrorResponse> {
    // Together, so that they share syncs of the disk.
    let mut deletions = JoinSet::new();
    for KvEntry { key, .. } in page {
        let shared = Arc::clone(shared);
        deletions.spawn(async move {
            let delete = KvCall::Delete(key, None);
            shared.send(|answer| LinkRequest::Kv(delete, answer)).await
        });
    }
    let mut count = 0_u64;
    while let Some(deleted) = deletions.join_next().await {
        match deleted.map_err(|_| HubFault::Down)?? {
            Ok(_) => count = count.saturating_add(1),
            // Its lease has ended meanwhile.
            Err(KvError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_one_player_is_not_one_of_another() {
        for text in ["player/{player}/", "{player}.", "a={player}/b"] {
            let prefix: PersonPrefix = text.parse().unwrap();
            assert!(prefix.of(ClientId(7)).is_some(), "{text}");
        }
        for text in [
            "",
            "player/",
            "player/{player}",
            "p/{player}1",
            "p1{player}/",
            "{player}/{player}/",
            "a b/{player}/",
        ] {
            assert_eq!(
                text.parse::<PersonPrefix>(),
                Err(PersonPrefixError),
                "{text}"
            );
        }
        let prefix = PersonPrefix::default();
        let key = KvKey::new("player/42/name").unwrap();
        assert!(key.starts_with(&prefix.of(ClientId(42)).unwrap()));
        assert!(!key.starts_with(&prefix.of(ClientId(4)).unwrap()));
    }

    #[test]
    fn a_place_in_an_export_has_a_text() {
        let key = KvKey::new("player/42/a-b").unwrap();
        for place in [
            Place::Mail(7),
            Place::Key(None),
            Place::Key(Some(key)),
            Place::Record(9),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "mail", "mail-x", "key-.", "other-1"] {
            assert_eq!(text.parse::<Place>(), Err(()), "{text}");
        }
    }
}
