//! Protected packets, packet numbers, resets, and frames with random fields.

use serde_json::{Value, json};
use udp_proto::channel::{MsgFrame, MsgHeader};
use udp_proto::fragment::{FRAGMENT_LEN, Position};
use udp_proto::frame::{AckFrame, Frame, Frames};
use udp_proto::handshake::reset::ResetToken;
use udp_proto::inbox::Inbox;
use udp_proto::packet::{Cid, Form, Header, KeyPhase, PacketNumber, TruncatedNumber};
use udp_proto::{ChannelConfig, ChannelId, ChannelTable};
use wire::Instant;

use crate::{Book, hex};

/// Writes some thousands of them.
pub(crate) fn write(book: &mut Book) {
    for _ in 0..400 {
        header(book);
        number(book);
        reset(book);
    }
    let tables = [ChannelTable::default(), every_kind()];
    let [_, every_kind] = &tables;
    for _ in 0..3_000 {
        let mut plaintext = Vec::new();
        random_message(book, every_kind, &mut plaintext);
        put_frames(book, &plaintext, every_kind);
    }
    for round in 0..2_000 {
        let table = &tables[round % 2];
        let mut plaintext = Vec::new();
        for _ in 0..=book.generator.below(4) {
            random_frame(book, table, &mut plaintext);
        }
        put_frames(book, &plaintext, table);
        let damaged = book.damage(&plaintext);
        put_frames(book, &damaged, table);
    }
}

/// Returns one channel of each kind, with short and long messages.
pub(crate) fn every_kind() -> ChannelTable {
    let mut rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::unreliable(),
        ChannelConfig::bulk(),
    ];
    rows[4].message_bytes_max = 100;
    rows[2].message_bytes_max = 5 * FRAGMENT_LEN / 2;
    ChannelTable::new(&rows).unwrap()
}

fn header(book: &mut Book) {
    let cid_len = book.pick(&[0_usize, 1, 4, 8]);
    let header = Header {
        key_phase: book.pick(&[KeyPhase::Even, KeyPhase::Odd]),
        destination: Cid::from_slice(&book.bytes(cid_len)).unwrap(),
        number: match book.generator.below(2) {
            0 => TruncatedNumber::Two(u16::from_be_bytes(book.array())),
            _ => TruncatedNumber::Four(book.generator.next_u32()),
        },
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    let len = book.pick(&[19_usize, 20, 21, 60]);
    bytes.extend_from_slice(&book.bytes(len));
    put_header(book, &bytes, cid_len);
    let damaged = book.damage(&bytes);
    put_header(book, &damaged, cid_len);
}

/// Adds a protected packet.
pub(crate) fn put_header(book: &mut Book, bytes: &[u8], cid_len: usize) {
    let read = Header::decode(bytes, cid_len).map_or(Value::Null, |header| {
        json!({
            "key_phase": u8::from(header.key_phase == KeyPhase::Odd),
            "cid": hex(header.destination.as_slice()),
            "number": number_hex(header.number),
        })
    });
    book.put_with("header", bytes, &json!({ "cid_len": cid_len }), &read);
}

fn number_hex(number: TruncatedNumber) -> String {
    match number {
        TruncatedNumber::Two(low) => hex(&low.to_be_bytes()),
        TruncatedNumber::Four(low) => hex(&low.to_be_bytes()),
    }
}

/// Packet number expansion, near the limits of both encodings and of the whole range.
fn number(book: &mut Book) {
    let base = book.pick(&[
        0_u64,
        1 << 15,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 40,
        (1 << 62) - 1,
    ]);
    let near = book.generator.between(0, 80_000);
    let expected = match book.generator.below(3) {
        0 => base,
        1 => base.saturating_sub(near),
        _ => (base + near).min((1 << 62) - 1),
    };
    let expected = PacketNumber::new(expected).unwrap();
    let form = book.pick(&[Form::Two, Form::Four]);
    let distance = book.pick(&[0, 1, (1 << 15) - 1, 1 << 15, (1 << 15) + 1, 1 << 31]);
    let sent = PacketNumber::new(expected.get().wrapping_add(distance) % (1 << 62)).unwrap();
    let low = sent.truncate(form);
    let bytes = match low {
        TruncatedNumber::Two(low) => low.to_be_bytes().to_vec(),
        TruncatedNumber::Four(low) => low.to_be_bytes().to_vec(),
    };
    let widened = json!(expected.widen(low).get());
    let more = json!({ "expected": expected.get() });
    book.put_with("widen", &bytes, &more, &widened);
}

fn reset(book: &mut Book) {
    let token: [u8; 16] = book.array();
    let len = book.pick(&[37_usize, 38, 39, 60]);
    let mut bytes = book.bytes(len);
    bytes[0] = 0x40 | bytes[0] & 0x3F;
    if book.generator.below(4) > 0 {
        bytes[len - 16..].copy_from_slice(&token);
    }
    if book.generator.below(4) == 0 {
        bytes[len - 1] ^= 1;
    }
    let ends = ResetToken::decode(token).unwrap().ends(&bytes);
    let more = json!({ "token": hex(&token) });
    book.put_with("reset", &bytes, &more, &json!(ends));
}

fn random_frame(book: &mut Book, table: &ChannelTable, out: &mut Vec<u8>) {
    let eight = book.array();
    match book.generator.below(12) {
        0 => Frame::Ping.encode(out),
        1 | 2 => random_ack(book, out),
        3 => {
            let len = book.pick(&[0_usize, 1, 127, 128]);
            let (code, reason) = (book.pick(&[0, 1, 21, 0xFFFF]), book.bytes(len));
            let reason = &reason;
            Frame::Close { code, reason }.encode(out);
        }
        4 => Frame::PathChallenge(eight).encode(out),
        5 => Frame::PathResponse(eight).encode(out),
        6 => Frame::Window(book.generator.next_u64() >> 16).encode(out),
        7 => Frame::Confirm {
            params: &book.array(),
            channel_digest: &book.array(),
        }
        .encode(out),
        8 => match book.generator.below(4) {
            0 => Frame::Time(book.generator.next_u32()).encode(out),
            1 => Frame::Identity {
                public_key: &book.array(),
                signature: &book.array(),
            }
            .encode(out),
            2 => out.extend_from_slice(&[0, 0, 0]),
            _ => out.push(book.pick(&[0x0B, 0x10, 0x1F, 0x7F])),
        },
        _ => random_message(book, table, out),
    }
}

fn random_ack(book: &mut Book, out: &mut Vec<u8>) {
    let len = book.pick(&[0_usize, 0, 1, 2, 127, 128]);
    let mut bits = book.bytes(len);
    if let Some(last) = bits.last_mut() {
        *last |= book.pick(&[1, 0x80]);
    }
    Frame::Ack(AckFrame {
        largest: match book.generator.below(2) {
            0 => TruncatedNumber::Two(u16::from_be_bytes(book.array())),
            _ => TruncatedNumber::Four(book.generator.next_u32()),
        },
        delay: book.pick(&[0, 1, 0xFFFE, 0xFFFF]),
        run: book.pick(&[0, 1, 127, 128, 1_022, 1_023]),
        bits: &bits,
    })
    .encode(out);
}

fn random_message(book: &mut Book, table: &ChannelTable, out: &mut Vec<u8>) {
    let channel = book.index(table.rows().len() + 1);
    let channel = u8::try_from(channel).unwrap();
    let is_numbered = table
        .get(ChannelId(channel))
        .is_none_or(|row| row.delivery.code() != 0);
    let count = book.pick(&[2, 3, 3, 3, 58, 59, 60]);
    let fragment = (book.generator.below(3) == 0).then(|| Position {
        index: book.pick(&[0, 1, count - 2, count - 1, count]),
        count: book.pick(&[count, count, count, 0, 1]),
    });
    let len = match fragment {
        Some(_) => book.pick(&[
            0_usize,
            1,
            560,
            561,
            FRAGMENT_LEN - 1,
            FRAGMENT_LEN,
            FRAGMENT_LEN,
        ]),
        None => book.pick(&[0_usize, 1, 60, 100, 101, 127, 128, 1_166]),
    };
    let header = MsgHeader {
        channel: ChannelId(channel),
        id: (is_numbered || fragment.is_some()).then(|| u16::from_be_bytes(book.array())),
        fragment,
    };
    let data = book.bytes(len);
    if book.generator.below(5) == 0 {
        // The last frame of its packet has no length.
        header.encode(None, out);
        out.extend_from_slice(&data);
    } else {
        MsgFrame {
            header,
            data: &data,
        }
        .encode(out);
    }
}

/// Adds a plaintext: its frames up to the first that ends a session.
pub(crate) fn put_frames(book: &mut Book, plaintext: &[u8], table: &ChannelTable) {
    let (mut frames, mut is_whole) = (Vec::new(), true);
    for frame in Frames::new(plaintext, table) {
        match frame {
            Ok(frame) if is_taken(&frame, table) => frames.push(shown(&frame)),
            _ => {
                is_whole = false;
                break;
            }
        }
    }
    let rows: Vec<_> = table
        .rows()
        .iter()
        .map(|row| (row.delivery.code(), row.message_bytes_max))
        .collect();
    let read = json!({ "frames": frames, "is_whole": is_whole });
    book.put_with("frames", plaintext, &json!({ "table": rows }), &read);
}

/// Returns whether a channel accepts a frame's part of a message if it arrives first.
fn is_taken(frame: &Frame<'_>, table: &ChannelTable) -> bool {
    let Frame::Message(mut message) = *frame else {
        return true;
    };
    message.header.id = message.header.id.map(|_| 0);
    let mut inbox = Inbox::new(table.clone(), 16 << 20, 0);
    inbox.on_message(Instant::ZERO, &message).is_ok()
}

fn shown(frame: &Frame<'_>) -> Value {
    match frame {
        Frame::Ping => json!({ "frame": "ping" }),
        Frame::Ack(ack) => {
            let reported: Vec<u64> = (0..=ack.lowest_below())
                .filter(|below| ack.reports(*below))
                .collect();
            json!({
                "frame": "ack",
                "largest": number_hex(ack.largest),
                "delay": ack.delay,
                "reported": reported,
            })
        }
        Frame::Close { code, reason } => {
            json!({ "frame": "close", "code": code, "reason": hex(reason) })
        }
        Frame::PathChallenge(data) => json!({ "frame": "path_challenge", "data": hex(data) }),
        Frame::PathResponse(data) => json!({ "frame": "path_response", "data": hex(data) }),
        Frame::Window(credit) => json!({ "frame": "window", "credit": credit }),
        Frame::Confirm {
            params,
            channel_digest,
        } => json!({
            "frame": "confirm",
            "params": hex(*params),
            "digest": hex(*channel_digest),
        }),
        Frame::Time(clock) => json!({ "frame": "time", "data": hex(&clock.to_be_bytes()) }),
        Frame::Identity {
            public_key,
            signature,
        } => json!({
            "frame": "identity",
            "key": hex(*public_key),
            "signature": hex(*signature),
        }),
        Frame::Message(message) => json!({
            "frame": "msg",
            "channel": message.header.channel.0,
            "id": message.header.id,
            "fragment": message.header.fragment.map(|at| [at.index, at.count]),
            "data": hex(message.data),
        }),
    }
}
