//! `WebSocket`s (RFC 6455) on which the server sends text, and reads control frames only.

use std::io;
use std::io::ErrorKind;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64ct::{Base64, Encoding as _};
use crypto::Ring;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::error_response::ErrorResponse;

/// Returns the response that accepts an upgrade, or rejects the request.
pub(crate) fn accept(headers: &HeaderMap) -> Result<Response, ErrorResponse> {
    let has_token = |name, token: &str| {
        let values = headers.get_all(name).iter();
        let mut words = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(token))
    };
    let is_version_13 = headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_some_and(|version| version == "13");
    let is_upgrade =
        has_token(header::UPGRADE, "websocket") && has_token(header::CONNECTION, "upgrade");
    if !is_upgrade || !is_version_13 {
        let detail = "this path is a WebSocket of version 13 (RFC 6455)";
        return Err(ErrorResponse::new(
            StatusCode::UPGRADE_REQUIRED,
            "no_upgrade",
            detail,
        ));
    }
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|key| {
            Base64::decode_vec(key.to_str().unwrap_or_default()).is_ok_and(|key| key.len() == 16)
        })
        .ok_or_else(|| {
            let detail = "Sec-WebSocket-Key is not 16 bytes in base64";
            ErrorResponse::bad("bad_key", detail)
        })?;
    let accepted = accept_key(key.as_bytes());
    let accepted = HeaderValue::from_str(&accepted)
        .map_err(|_| ErrorResponse::bad("bad_key", "Sec-WebSocket-Key is invalid"))?;
    let headers = [
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::SEC_WEBSOCKET_ACCEPT, accepted),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Returns the `Sec-WebSocket-Accept` of a key.
pub(crate) fn accept_key(key: &[u8]) -> String {
    Base64::encode_string(&Ring::legacy_sha1(&[key, GUID]))
}

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why this side closes (RFC 6455, section 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum CloseCode {
    GoingAway = 1001,
    Protocol = 1002,
    Policy = 1008,
    TooLong = 1009,
    TryAgain = 1013,
}

/// What the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A ping with its payload, which a pong returns.
    Ping(Vec<u8>),
    /// A pong, or a part of a message, which is ignored.
    Other,
    Close,
}

/// A frame that breaks the protocol or the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    Malformed,
    TooLong,
}

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket<S> {
    stream: S,
    /// Received bytes without a whole frame; less than one frame of the longest kind and a read.
    received: Vec<u8>,
}

/// Longest frame accepted, bytes. A subscriber has nothing to say but control frames.
pub(crate) const FRAME_BYTES_MAX: usize = 4_096;

const READ_BYTES: usize = 2_048;

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends texts, each as one message.
    pub(crate) async fn send(&mut self, texts: &[String]) -> io::Result<()> {
        let mut frames = Vec::new();
        for text in texts {
            encode(TEXT, text.as_bytes(), &mut frames);
        }
        self.write(&frames).await
    }

    pub(crate) async fn ping(&mut self) -> io::Result<()> {
        let mut frame = Vec::new();
        encode(PING, b"", &mut frame);
        self.write(&frame).await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut frame = Vec::new();
        encode(PONG, payload, &mut frame);
        self.write(&frame).await
    }

    /// Sends the close with its reason, at most 123 bytes of it, and ends the stream.
    pub(crate) async fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        let mut payload = (code as u16).to_be_bytes().to_vec();
        payload.extend(reason.bytes().take(REASON_BYTES_MAX));
        let mut frame = Vec::new();
        encode(CLOSE, &payload, &mut frame);
        self.write(&frame).await?;
        self.stream.shutdown().await
    }

    async fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await?;
        self.stream.flush().await
    }

    /// Receives the next frame. Dropping the future loses nothing.
    pub(crate) async fn receive(&mut self) -> io::Result<Result<Incoming, FrameError>> {
        loop {
            match decode(&self.received) {
                Err(error) => return Ok(Err(error)),
                Ok(Some((incoming, len))) => {
                    self.received.drain(..len);
                    return Ok(Ok(incoming));
                }
                Ok(None) => {}
            }
            let mut bytes = [0; READ_BYTES];
            let len = self.stream.read(&mut bytes).await?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.received
                .extend_from_slice(bytes.get(..len).unwrap_or_default());
        }
    }
}

const REASON_BYTES_MAX: usize = 123;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Appends an unmasked, unfragmented frame.
fn encode(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x80 | kind);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len @ ..126), _) => out.push(len),
        (_, Ok(len)) => {
            out.push(126);
            out.extend(len.to_be_bytes());
        }
        (_, Err(_)) => {
            out.push(127);
            out.extend(
                u64::try_from(payload.len())
                    .unwrap_or(u64::MAX)
                    .to_be_bytes(),
            );
        }
    }
    out.extend_from_slice(payload);
}

/// Decodes the masked frame at the start of `bytes`, and returns its length; `None` if it is not
/// complete.
fn decode(bytes: &[u8]) -> Result<Option<(Incoming, usize)>, FrameError> {
    let Some((&[first, second], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let (is_final, kind) = (first & 0x80 != 0, first & 0x0f);
    let is_control = kind & 0x08 != 0;
    let short = second & 0x7f;
    // Reserved bits need an extension, and a client masks every frame.
    let is_known = matches!(kind, 0..=2 | CLOSE | PING | PONG);
    if first & 0x70 != 0 || second & 0x80 == 0 || !is_known {
        return Err(FrameError::Malformed);
    }
    if is_control && (!is_final || short > 125) {
        return Err(FrameError::Malformed);
    }
    let (len, rest, head) = match short {
        127 => return Err(FrameError::TooLong),
        126 => match rest.split_first_chunk() {
            Some((len, rest)) => (usize::from(u16::from_be_bytes(*len)), rest, 8_usize),
            None => return Ok(None),
        },
        len => (usize::from(len), rest, 6),
    };
    if len > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong);
    }
    let Some((mask, rest)) = rest.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let Some(masked) = rest.get(..len) else {
        return Ok(None);
    };
    let incoming = match kind {
        CLOSE => Incoming::Close,
        PING => {
            let payload = masked.iter().zip(mask.iter().cycle());
            Incoming::Ping(payload.map(|(byte, mask)| byte ^ mask).collect())
        }
        _ => Incoming::Other,
    };
    Ok(Some((incoming, head.saturating_add(len))))
}

/// What a client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Text(String),
    Ping(Vec<u8>),
    /// The end, with its reason.
    Close(String),
    Other,
}

/// Decodes a frame of this server at the start of `bytes`, and returns its length; `None` if it is
/// not complete.
pub(crate) fn decode_sent(bytes: &[u8]) -> Option<(Sent, usize)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match second & 0x7f {
        127 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(u64::from_be_bytes(*len)).ok()?, rest)
        }
        126 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        len => (usize::from(len), rest),
    };
    let payload = rest.get(..len)?;
    let head = bytes.len().saturating_sub(rest.len());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let sent = match first & 0x0f {
        TEXT => Sent::Text(text(payload)),
        PING => Sent::Ping(payload.to_vec()),
        CLOSE => Sent::Close(text(payload.get(2..).unwrap_or_default())),
        _ => Sent::Other,
    };
    Some((sent, head.saturating_add(len)))
}

/// Encodes the pong of a client; `mask` is random.
pub(crate) fn encode_pong(payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let payload = payload.iter().take(125);
    let len = u8::try_from(payload.len()).unwrap_or(125);
    let mut frame = vec![0x80 | PONG, 0x80 | len];
    frame.extend(mask);
    frame.extend(
        payload
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_the_accept_key_of_the_example() {
        let accept = accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn rfc6455_an_upgrade_needs_all_its_fields() {
        let fields = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let response = accept(&headers(&fields)).unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        for missing in 0..fields.len() {
            let mut fields = fields.to_vec();
            fields.remove(missing);
            assert!(accept(&headers(&fields)).is_err(), "{missing}");
        }
        let mut fields = fields;
        fields[3].1 = "dGhlIHNhbXBsZQ==";
        assert!(accept(&headers(&fields)).is_err(), "a short key");
    }

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match u16::try_from(payload.len()).unwrap() {
            len @ ..126 => frame.push(0x80 | u8::try_from(len).unwrap()),
            len => {
                frame.push(0xfe);
                frame.extend(len.to_be_bytes());
            }
        }
        frame.extend([1, 2, 3, 4]);
        let mask = [1, 2, 3, 4].into_iter().cycle();
        frame.extend(payload.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn frames_are_decoded_once_they_are_complete() {
        let long = [7; 200];
        for (frame, expected) in [
            (
                masked(0x89, b"are you there"),
                Incoming::Ping(b"are you there".to_vec()),
            ),
            (masked(0x8a, b""), Incoming::Other),
            (masked(0x81, &long), Incoming::Other),
            (masked(0x88, &[3, 232]), Incoming::Close),
        ] {
            for len in 0..frame.len() {
                assert_eq!(decode(&frame[..len]), Ok(None), "{len}");
            }
            let len = frame.len();
            let mut bytes = frame;
            bytes.extend([0xff; 3]);
            assert_eq!(decode(&bytes), Ok(Some((expected, len))));
        }
    }

    #[test]
    fn frames_that_break_the_protocol_are_refused() {
        let malformed = Err(FrameError::Malformed);
        // Not masked, a reserved bit, an unknown kind, a fragmented and a long control frame.
        for head in [
            [0x81, 1],
            [0xc1, 0x81],
            [0x83, 0x81],
            [0x09, 0x80],
            [0x89, 0xfe],
        ] {
            assert_eq!(decode(&head), malformed, "{head:?}");
        }
        assert_eq!(decode(&[0x81, 0xff]), Err(FrameError::TooLong));
        let len = u16::try_from(FRAME_BYTES_MAX).unwrap() + 1;
        let [high, low] = len.to_be_bytes();
        assert_eq!(decode(&[0x81, 0xfe, high, low]), Err(FrameError::TooLong));
    }

    #[test]
    fn a_client_reads_what_the_server_sends() {
        for (kind, len, expected) in [
            (TEXT, 3, Sent::Text("aaa".to_owned())),
            (TEXT, 70_000, Sent::Text("a".repeat(70_000))),
            (PING, 125, Sent::Ping(vec![b'a'; 125])),
            (CLOSE, 130, Sent::Close("a".repeat(128))),
            (PONG, 0, Sent::Other),
        ] {
            let mut frame = Vec::new();
            encode(kind, &vec![b'a'; len], &mut frame);
            assert_eq!(decode_sent(&frame[..frame.len() - 1]), None);
            assert_eq!(decode_sent(&frame), Some((expected, frame.len())));
        }
        let pong = encode_pong(b"abc", [9, 8, 7, 6]);
        assert_eq!(decode(&pong), Ok(Some((Incoming::Other, pong.len()))));
    }

    #[test]
    fn a_frame_has_the_shortest_length() {
        for (len, head) in [
            (125, &[0x81_u8, 125][..]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 255, 255]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut frame = Vec::new();
            encode(TEXT, &vec![0; len], &mut frame);
            assert_eq!(frame[..head.len()], *head);
            assert_eq!(frame.len(), head.len() + len);
        }
    }
}
