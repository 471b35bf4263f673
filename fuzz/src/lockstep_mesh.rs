//! Datagrams between the peers of a lockstep mesh.

use lockstep::bundle::{self, Shape};
use lockstep::message::{
    HASHES_MAX, Hello, MESH_DELAY_MAX, MESH_SEATS_MAX, MeshMessage, Play, SeatBundles, Seats,
    Ticks, VERSION, bit, decode_mesh,
};
use lockstep::{Tick, Width};

/// Decodes a datagram, after three bytes for seats and width. An accepted datagram is in canonical
/// encoding and contains only seats of the match. Its bundles fill the rest after the header.
pub fn datagram(data: &[u8]) {
    let Some((shape, datagram)) = shaped(data) else {
        return;
    };
    let Ok(message) = decode_mesh(datagram, shape) else {
        return;
    };
    assert_eq!(written(&message, shape), datagram, "two ways: {message:?}");
    match message {
        MeshMessage::Hello(hello) => {
            assert!(hello.seat < hello.parameters.seats && hello.delay <= MESH_DELAY_MAX);
        }
        MeshMessage::Statement(statement) => {
            assert_ne!(statement.members, statement.suspects);
            assert!(is_within(statement.members | statement.leaving, shape));
        }
        MeshMessage::Decision(decision) => {
            assert!(decision.next != 0 && decision.next != decision.members);
            assert!(is_within(decision.members | decision.leaving, shape));
        }
        MeshMessage::Ask { seat, .. } | MeshMessage::Forward { seat, .. } => {
            assert!(u16::from(seat) < shape.seats);
        }
        MeshMessage::Play(_) | MeshMessage::Committed(..) | MeshMessage::Leave => {}
    }
}

/// Reads the first three bytes as seats and width.
pub(crate) fn shaped(data: &[u8]) -> Option<(Shape, &[u8])> {
    let ([seats, high, low], datagram) = data.split_first_chunk()?;
    let bits = u16::from_be_bytes([*high, *low]) % 2_048 + 1;
    let shape = Shape {
        seats: u16::from(*seats) % (MESH_SEATS_MAX - 1) + 2,
        width: Width::new(bits).expect("1 to 2,048"),
    };
    Some((shape, datagram))
}

pub(crate) fn is_within(seats: Seats, shape: Shape) -> bool {
    (shape.seats..MESH_SEATS_MAX).all(|seat| seats & bit(seat) == 0)
}

fn written(message: &MeshMessage<'_>, shape: Shape) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        MeshMessage::Hello(hello) => write_hello(&mut out, hello),
        MeshMessage::Play(play) => write_play(&mut out, play, shape),
        MeshMessage::Committed(commitment, play) => {
            out.push(0x47);
            write_numbers(&mut out, [commitment.end_low]);
            out.extend_from_slice(&commitment.head);
            let salts: Vec<_> = commitment.salts().collect();
            let count = u16::try_from(salts.len()).expect("as many as are counted");
            write_numbers(&mut out, [count]);
            out.extend(salts.as_flattened());
            assert_eq!(play.bundles.len(), u32::from(count));
            write_play(&mut out, play, shape);
        }
        MeshMessage::Leave => out.push(0x42),
        MeshMessage::Statement(statement) => {
            out.push(0x43);
            write_numbers(&mut out, [statement.members, statement.suspects]);
            write_numbers(&mut out, [statement.leaving]);
            let staying = statement.members & !statement.suspects;
            write_ticks(&mut out, &statement.held, staying, shape);
        }
        MeshMessage::Decision(decision) => {
            out.push(0x44);
            write_numbers(
                &mut out,
                [decision.members, decision.next, decision.leaving],
            );
            write_ticks(&mut out, &decision.cuts, decision.next, shape);
        }
        MeshMessage::Ask { seat, first } => write_at(&mut out, 0x45, *seat, *first),
        MeshMessage::Forward {
            seat,
            first,
            bundles,
        } => {
            write_at(&mut out, 0x46, *seat, *first);
            write_bundles(&mut out, bundles, shape);
        }
    }
    out
}

fn write_hello(out: &mut Vec<u8>, hello: &Hello) {
    let parameters = &hello.parameters;
    out.extend_from_slice(&[0x40, VERSION, parameters.seats, hello.seat]);
    out.extend_from_slice(&parameters.width.to_be_bytes());
    out.extend_from_slice(&parameters.period_nanos.to_be_bytes());
    out.push(parameters.hash_interval);
    out.push(parameters.commits.into());
    out.extend_from_slice(&parameters.match_id.0);
    out.extend_from_slice(&parameters.content.to_be_bytes());
    out.push(hello.delay);
    write_numbers(out, [hello.received]);
    out.extend_from_slice(&hello.sent.to_be_bytes());
    out.extend_from_slice(&hello.echo.to_be_bytes());
    out.extend_from_slice(&hello.held.unwrap_or(u32::MAX).to_be_bytes());
    let starts_in = hello.starts_in.unwrap_or(i32::MIN);
    out.extend_from_slice(&starts_in.to_be_bytes());
}

fn write_play(out: &mut Vec<u8>, play: &Play<'_>, shape: Shape) {
    let hashes: Vec<_> = play.hashes.iter().collect();
    let count = u8::try_from(hashes.len()).expect("at most 16");
    assert!(u32::from(count) <= HASHES_MAX);
    let head = &play.head;
    let asks = u8::from(head.wanted_low.is_some()) << 6;
    out.extend_from_slice(&[0x41, u8::from(head.is_gap) << 7 | asks | count]);
    write_numbers(out, [head.next_low]);
    let [zero, clock @ ..] = head.clock.to_be_bytes();
    assert_eq!(zero, 0, "16 bits of a tick, 8 of its fraction");
    out.extend_from_slice(&clock);
    out.extend_from_slice(&head.lead.to_be_bytes());
    write_numbers(out, head.wanted_low);
    if count > 0 {
        write_numbers(out, [play.hashes.first_low]);
    }
    for hash in hashes {
        out.extend_from_slice(&hash.to_be_bytes());
    }
    write_numbers(out, [head.first_low]);
    write_bundles(out, &play.bundles, shape);
}

/// Appends one seat's bundles and checks that each is well formed.
fn write_bundles(out: &mut Vec<u8>, bundles: &SeatBundles<'_>, shape: Shape) {
    let (seats, mut count) = (1, 0);
    let one_seat = Shape { seats, ..shape };
    let mut last: &[u8] = &[];
    for bundle in bundles.iter() {
        assert!((1..=one_seat.bundle_len_max()).contains(&bundle.len()));
        assert_eq!(bundle::check(bundle, one_seat), Ok(bundle.len()));
        out.extend_from_slice(bundle);
        (count, last) = (count + 1, bundle);
    }
    assert_eq!((bundles.len(), bundles.last()), (count, last));
}

fn write_at(out: &mut Vec<u8>, kind: u8, seat: u8, tick: Tick) {
    out.extend_from_slice(&[kind, seat]);
    out.extend_from_slice(&tick.0.to_be_bytes());
}

pub(crate) fn write_numbers(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u16>) {
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends the ticks of all seats except `staying`, which have none.
pub(crate) fn write_ticks(out: &mut Vec<u8>, ticks: &Ticks, staying: Seats, shape: Shape) {
    for (tick, seat) in ticks.iter().zip(0..MESH_SEATS_MAX) {
        if seat >= shape.seats || staying & bit(seat) != 0 {
            assert_eq!(*tick, Tick(0));
        } else {
            out.extend_from_slice(&tick.0.to_be_bytes());
        }
    }
}
