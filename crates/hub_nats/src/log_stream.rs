//! The stream of the log: its configuration, and reading it.

use core::time::Duration;
use std::collections::BTreeMap;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{
    Config, DirectGetErrorKind, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType,
    Stream,
};
use async_nats::jetstream::{Context, Message};
use async_nats::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;
use hub::log::SegmentId;
use tokio::time::timeout;

use crate::config::NatsConfig;
use crate::error::NatsError;
use crate::layout::Piece;
use crate::link::describe;

/// Header with the place of a message: `offset length capacity`, in bytes. The segment is the last
/// part of the subject.
pub(crate) const PLACE: &str = "Tickwire-Place";

/// Header with the writer of a message, and its number by that writer.
pub(crate) const WRITER: &str = "Tickwire-Writer";

/// The stream that holds the log.
#[derive(Clone, Debug)]
pub(crate) struct LogStream {
    pub(crate) stream: Stream,
    pub(crate) replicas: usize,
    prefix: String,
    request_timeout: Duration,
}

impl LogStream {
    /// Opens the stream, and creates it if needed.
    pub(crate) async fn open(context: &Context, config: &NatsConfig) -> Result<Self, NatsError> {
        let prefix = config.prefix();
        let wanted = Config {
            name: config.stream(),
            description: Some("the log of a hub of Tickwire".to_owned()),
            subjects: vec![format!("{prefix}.>")],
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: config.replicas,
            allow_direct: true,
            ..Config::default()
        };
        let stream = context
            .get_or_create_stream(wanted.clone())
            .await
            .map_err(|error| NatsError::request("the stream of the log", describe(&error)))?;
        let found = &stream.cached_info().config;
        check(found, &wanted)?;
        let replicas = found.num_replicas;
        Ok(Self {
            stream,
            replicas,
            prefix,
            request_timeout: config.request_timeout,
        })
    }

    pub(crate) fn subject(&self, segment: SegmentId) -> String {
        format!("{}.log.{:016}", self.prefix, segment.0)
    }

    /// Subject of the messages with which a hub takes over.
    pub(crate) fn owner_subject(&self) -> String {
        format!("{}.owner", self.prefix)
    }

    /// Returns the segment that `message` belongs to.
    fn segment_of(&self, subject: &str) -> Option<SegmentId> {
        let rest = subject.strip_prefix(&self.prefix)?;
        let number = rest.strip_prefix(".log.")?.parse().ok()?;
        Some(SegmentId(number))
    }

    /// Returns the number of the last message, as the leader knows it.
    pub(crate) async fn last(&self) -> Result<u64, NatsError> {
        let info = self.stream.get_info().await;
        let info =
            info.map_err(|error| NatsError::request("the stream's state", describe(&error)))?;
        Ok(info.state.last_sequence)
    }

    /// Reads the headers of all messages up to `last`, which exists, and gives `apply` the place
    /// of each.
    pub(crate) async fn scan(
        &self,
        last: u64,
        mut apply: impl FnMut(SegmentId, Placed),
    ) -> Result<(), NatsError> {
        let config = OrderedConfig {
            headers_only: true,
            ..OrderedConfig::default()
        };
        self.read(config, last, |message, seq| {
            let segment = self.segment_of(&message.subject);
            let place = message.headers.as_ref().and_then(|it| placed(it, seq));
            if let (Some(segment), Some(place)) = (segment, place) {
                apply(segment, place);
            }
        })
        .await
    }

    /// Reads the messages of `segment` from `first` to `last`.
    pub(crate) async fn read_range(
        &self,
        segment: SegmentId,
        first: u64,
        last: u64,
    ) -> Result<BTreeMap<u64, Bytes>, NatsError> {
        let config = OrderedConfig {
            filter_subject: self.subject(segment),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: first,
            },
            ..OrderedConfig::default()
        };
        let mut bodies = BTreeMap::new();
        self.read(config, last, |message, seq| {
            bodies.insert(seq, message.payload.clone());
        })
        .await?;
        Ok(bodies)
    }

    /// Reads by a consumer up to the message `last`. A follower that lags behind delivers it later; if the
    /// leader does not have it either, the read ends before it.
    async fn read(
        &self,
        config: OrderedConfig,
        last: u64,
        mut apply: impl FnMut(&Message, u64),
    ) -> Result<(), NatsError> {
        let failed = |what: String| NatsError::request("reading the log", what);
        let consumer = self.stream.create_consumer(config).await;
        let consumer = consumer.map_err(|error| failed(describe(&error)))?;
        let messages = consumer.messages().await;
        let mut messages = messages.map_err(|error| failed(describe(&error)))?;
        loop {
            // Longer than one request, since it spans elections and renewed consumers.
            let limit = self.request_timeout.saturating_mul(10);
            let next = timeout(limit, messages.next()).await;
            let message = match next {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return Err(failed(describe(&error))),
                Ok(None) => return Err(failed("the consumer has ended".to_owned())),
                Err(_) if self.get_from_leader(last).await?.is_none() => return Ok(()),
                Err(_) => return Err(failed("no message in time".to_owned())),
            };
            let info = message.info().map_err(|error| failed(error.to_string()))?;
            let seq = info.stream_sequence;
            if seq <= last {
                apply(&message, seq);
            }
            if seq >= last {
                return Ok(());
            }
        }
    }

    /// Returns a message with its headers; `None` if the stream does not have it.
    pub(crate) async fn get(&self, seq: u64) -> Result<Option<(HeaderMap, Bytes)>, NatsError> {
        match self.stream.direct_get(seq).await {
            Ok(message) => return Ok(Some((message.headers, message.payload))),
            // A follower may lag behind, so its answer that there is none does not count.
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
            Err(error) => {
                let error = describe(&error);
                tracing::debug!(seq, error, "no answer from any replica; asking the leader");
            }
        }
        self.get_from_leader(seq).await
    }

    /// As [`get`](Self::get), as the leader knows it.
    pub(crate) async fn get_from_leader(
        &self,
        seq: u64,
    ) -> Result<Option<(HeaderMap, Bytes)>, NatsError> {
        match self.stream.get_raw_message(seq).await {
            Ok(message) => Ok(Some((message.headers, message.payload))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(NatsError::request("a message of the log", describe(&error))),
        }
    }
}

/// Refuses a stream if its settings let acknowledged mail disappear.
fn check(found: &Config, wanted: &Config) -> Result<(), NatsError> {
    let fault = if found.subjects != wanted.subjects {
        format!("its subjects are {:?}", found.subjects)
    } else if found.retention != RetentionPolicy::Limits {
        "its retention is not by limits".to_owned()
    } else if !found.max_age.is_zero() {
        "it deletes messages by age".to_owned()
    } else if found.max_messages_per_subject > 0 {
        "it limits the messages of a subject".to_owned()
    } else if found.discard != DiscardPolicy::New {
        "it discards old messages when it is full".to_owned()
    } else if found.storage != StorageType::File {
        "it is kept in memory".to_owned()
    } else {
        return Ok(());
    };
    let name = &found.name;
    Err(NatsError::Stream(format!(
        "the stream {name} cannot hold the log: {fault}; remove it, or use another name"
    )))
}

/// Place of the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) piece: Piece,
    /// Length of the segment, bytes.
    pub(crate) capacity: u64,
}

/// Returns the value of the header for a place.
pub(crate) fn place_header(offset: u64, len: usize, capacity: u64) -> String {
    format!("{offset} {len} {capacity}")
}

fn placed(headers: &HeaderMap, seq: u64) -> Option<Placed> {
    let text = headers.get(PLACE)?.as_str();
    let mut numbers = text.split(' ').map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let (offset, len, capacity) = (next()?, next()?, next()?);
    if offset.checked_add(len)? > capacity {
        return None;
    }
    Some(Placed {
        piece: Piece {
            offset,
            len,
            skip: 0,
            seq,
        },
        capacity: capacity.into(),
    })
}

/// Returns the header with which the server refuses a message that does not follow `last`.
pub(crate) fn expect_last(headers: &mut HeaderMap, last: u64) {
    headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, last.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_and_impossible_ones_ignored() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(PLACE, text);
            placed(&headers, 9)
        };
        let found = of(&place_header(10, 20, 4_096)).unwrap();
        assert_eq!((found.piece.offset, found.piece.len), (10, 20));
        assert_eq!((found.piece.seq, found.capacity), (9, 4_096));
        for text in [
            "",
            "1",
            "1 2",
            "4090 10 4096",
            "4294967295 1 4294967295",
            "-1 2 3",
            "a b c",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(placed(&HeaderMap::new(), 9), None);
    }
}
