//! Writes that only the current owner of the log can make, each exactly once.
//!
//! Every message names the number of the one before it (`Nats-Expected-Last-Sequence`), so the server
//! refuses one of a hub that was replaced, and one that was sent twice. If an answer is lost, the
//! message at the expected number shows what happened.

use core::time::Duration;
use std::sync::atomic::Ordering;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::link::{Link, describe};
use crate::log_stream::{LogStream, PLACE, WRITER, expect_last};

/// A message that is not confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) subject: String,
    /// Value of [`PLACE`]; empty for none.
    pub(crate) place: String,
    /// Value of [`WRITER`], unique among all messages.
    pub(crate) writer: String,
    pub(crate) body: Bytes,
}

/// Why a message was not written, or not known to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The server has no room.
    Full(String),
    /// Another hub has written, or the server has lost messages: this hub may write no more.
    Lost(String),
}

/// Pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// Writes `messages` in order after the message `last`; returns the number of the last one.
///
/// While the server does not answer, they are sent again for the configured time.
pub(crate) async fn write(
    link: &Link,
    log: &LogStream,
    last: u64,
    messages: &[Outgoing],
) -> Result<u64, WriteError> {
    let deadline = Instant::now() + link.config.outage_max;
    let mut written = last;
    let mut rest = messages;
    loop {
        if let Some(reason) = link.shared.lost() {
            return Err(WriteError::Lost(reason));
        }
        let (count, failure) = send(link, written, rest).await;
        written = written.saturating_add(count as u64);
        rest = rest.get(count..).unwrap_or_default();
        let (Some(failure), Some(first)) = (failure, rest.first()) else {
            return Ok(written);
        };
        match what_follows(log, written, first).await {
            Ok(Follower::Itself) => {
                written = written.saturating_add(1);
                rest = rest.get(1..).unwrap_or_default();
            }
            Ok(Follower::None) if failure.is_full => return Err(WriteError::Full(failure.text)),
            // Sent again below.
            Ok(Follower::None) | Err(_) => {}
            Ok(Follower::Other(reason)) => return Err(WriteError::Lost(reason)),
        }
        if rest.is_empty() {
            return Ok(written);
        }
        if Instant::now() >= deadline {
            let text = failure.text;
            return Err(WriteError::Lost(format!("NATS confirms no write: {text}")));
        }
        link.shared.resent.fetch_add(1, Ordering::Relaxed);
        let error = failure.text;
        tracing::warn!(error, "a write was not confirmed; asking again");
        sleep(PAUSE).await;
    }
}

#[derive(Debug)]
struct Failure {
    text: String,
    is_full: bool,
}

/// Sends all `messages` at once; returns how many were confirmed before the first that was not.
async fn send(link: &Link, last: u64, messages: &[Outgoing]) -> (usize, Option<Failure>) {
    let mut answers = Vec::with_capacity(messages.len());
    for (message, last) in messages.iter().zip(last..) {
        let mut headers = HeaderMap::new();
        if !message.place.is_empty() {
            headers.insert(PLACE, message.place.as_str());
        }
        headers.insert(WRITER, message.writer.as_str());
        expect_last(&mut headers, last);
        let publish = PublishMessage::build()
            .payload(message.body.clone())
            .headers(headers);
        let sent = link.context.send_publish(message.subject.clone(), publish);
        let is_failed = match sent.await {
            Ok(answer) => {
                answers.push(Ok(answer));
                false
            }
            Err(error) => {
                answers.push(Err(error));
                true
            }
        };
        if is_failed {
            break;
        }
    }
    for (count, answer) in answers.into_iter().enumerate() {
        let ended = match answer {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(ack) if ack.sequence == last.saturating_add(count as u64).saturating_add(1) => {}
            Ok(ack) => {
                let text = format!("the server numbered a message {}", ack.sequence);
                return (
                    count,
                    Some(Failure {
                        text,
                        is_full: false,
                    }),
                );
            }
            Err(error) => {
                let text = describe(&error);
                let is_full = error.kind() == PublishErrorKind::Other && is_shortage(&text);
                return (count, Some(Failure { text, is_full }));
            }
        }
    }
    (messages.len(), None)
}

/// Returns whether the server refused a message since a limit or its disk is full.
fn is_shortage(text: &str) -> bool {
    [
        "maximum bytes",
        "maximum messages",
        "insufficient",
        "no space",
        "resource limits",
    ]
    .iter()
    .any(|part| text.contains(part))
}

enum Follower {
    /// The message was written.
    Itself,
    /// Nothing was written.
    None,
    Other(String),
}

/// Finds out what follows the message `last`.
async fn what_follows(
    log: &LogStream,
    last: u64,
    message: &Outgoing,
) -> Result<Follower, crate::NatsError> {
    let next = last.saturating_add(1);
    if let Some((headers, _)) = log.get_from_leader(next).await? {
        let writer = headers.get(WRITER).map_or("", |it| it.as_str());
        return Ok(if writer == message.writer {
            Follower::Itself
        } else {
            Follower::Other("another hub writes to the log".to_owned())
        });
    }
    let found = log.last().await?;
    Ok(if found == last {
        Follower::None
    } else if found < last {
        let lost = last.saturating_sub(found);
        Follower::Other(format!(
            "the server has lost {lost} messages that it had confirmed; mail that was acknowledged \
             to its sender may be gone"
        ))
    } else if found == next {
        // Written since the first question, or removed.
        Follower::None
    } else {
        Follower::Other("another hub writes to the log".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_are_told_from_other_errors() {
        assert!(is_shortage(
            "publish failed: maximum bytes exceeded (code 503)"
        ));
        assert!(is_shortage("insufficient storage resources available"));
        assert!(!is_shortage("wrong last sequence: 7"));
        assert!(!is_shortage("timed out"));
    }
}
