//! Datagrams that both ends of a lockstep match decode.

use lockstep::Width;
use lockstep::bundle::{self, Shape};
use lockstep::message::{
    Answer, Down, HASHES_MAX, INPUTS_MAX, Mode, PERIOD_NANOS, STRETCH_MAX, Turns, Up, VERSION,
    Welcome, decode_down, decode_up,
};

/// Decodes a client's datagram, after two bytes for the input width. An accepted datagram unpacks
/// to the number of inputs in its header, without trailing bytes.
pub fn up(data: &[u8]) {
    let Some((width, datagram)) = data.split_first_chunk() else {
        return;
    };
    let width = width_of(u16::from_be_bytes(*width));
    let Ok(up) = decode_up(datagram, width) else {
        return;
    };
    let longer = [datagram, &[0]].concat();
    assert!(decode_up(&longer, width).is_err(), "with a byte behind it");
    match up {
        Up::Ready { next } => {
            let mut written = vec![1, VERSION];
            written.extend_from_slice(&next.0.to_be_bytes());
            assert_eq!(datagram, written);
        }
        Up::Leave(reason) => {
            assert_eq!(datagram, [3, reason.code()]);
            assert!(reason.is_players(), "{reason:?}");
        }
        Up::Report(report) => {
            let count = u32::try_from(report.hashes.iter().count()).expect("a few");
            assert_eq!(count, report.hashes.count);
            assert!(count <= HASHES_MAX);
            let Some(inputs) = report.inputs else {
                return;
            };
            assert!((1..=INPUTS_MAX).contains(&inputs.count));
            let mut input = vec![0; width.byte_len()];
            let mut next = 0;
            inputs.unpack(&mut input, |index, bits| {
                assert_eq!((index, bits.len()), (next, width.byte_len()));
                next += 1;
            });
            assert_eq!(next, inputs.count);
        }
        Up::SnapshotAsk => assert_eq!(datagram, [0x0b]),
        Up::Answer(answer) => assert!(is_bounded(&answer), "{answer:?}"),
    }
}

/// Decodes a server's datagram, after four bytes for seats and width. An accepted welcome has one
/// encoding. Bundles are well formed and fill the rest after the header.
pub fn down(data: &[u8]) {
    let Some(([a, b, c, d], datagram)) = data.split_first_chunk() else {
        return;
    };
    let shape = Shape {
        seats: u16::from_be_bytes([*a, *b]) % 300 + 1,
        width: width_of(u16::from_be_bytes([*c, *d])),
    };
    match decode_down(datagram, Some(shape)) {
        Ok(Down::Welcome(welcome)) => {
            assert!(PERIOD_NANOS.contains(&welcome.period_nanos));
            let delay = welcome.input_delay;
            assert!(1 <= delay.min() && delay.min() <= delay.max() && delay.max() <= 60);
            assert!((1..=8).contains(&welcome.repair));
            let seats = welcome.shape.seats;
            assert!(welcome.seat.is_none_or(|seat| seat.0 < seats));
            assert_eq!(written(&welcome), datagram, "two ways to write {welcome:?}");
        }
        Ok(Down::Early(early, turns)) => {
            let mut last = None;
            let neutral = vec![0; shape.width.byte_len()];
            early.unpack(&mut neutral.clone(), &neutral, |seat, ahead, input| {
                assert!(seat.0 < shape.seats && ahead < 64 && input.len() == neutral.len());
                assert!(last < Some((seat, ahead)), "in order, each once");
                last = Some((seat, ahead));
            });
            let bundles = turns.bundles.iter().map(<[u8]>::len).sum::<usize>();
            assert!(bundles < datagram.len());
            assert!(decode_down(datagram, None).is_err());
        }
        Ok(Down::Turns(turns)) => {
            assert_eq!(len_of(&turns, shape), datagram.len());
            // Before the welcome, the length of a bundle is unknown.
            assert!(decode_down(datagram, None).is_err());
        }
        Ok(Down::SnapshotAsk { id }) => assert_eq!(datagram, [0x8b, id]),
        Ok(Down::Question(question)) => {
            assert!(datagram.len() <= 8, "{question:?}");
            assert_eq!(decode_down(datagram, None), Ok(Down::Question(question)));
        }
        Ok(Down::Bye(reason)) => assert_eq!(datagram, [0x84, reason.code()]),
        Err(_) => {}
    }
}

/// Returns the length of a datagram of `turns` if all bundles are complete.
fn len_of(turns: &Turns<'_>, shape: Shape) -> usize {
    assert!(turns.stretch <= STRETCH_MAX);
    let stretch = if turns.stretch > 0 { 3 } else { 0 };
    let head = if turns.wanted_low.is_some() { 8 } else { 6 };
    let bundles = turns.bundles.iter().map(|bundle| {
        assert!((1..=shape.bundle_len_max()).contains(&bundle.len()));
        assert_eq!(bundle::check(bundle, shape), Ok(bundle.len()));
        bundle.len()
    });
    stretch + head + bundles.sum::<usize>()
}

/// Returns whether an answer matches its header and stays within the limits.
fn is_bounded(answer: &Answer<'_>) -> bool {
    match answer {
        Answer::Ticks(ticks) => ticks.count > 0 && ticks.iter().count() == usize::from(ticks.count),
        Answer::Sections { known, .. } => known.is_none_or(|known| {
            let is_text = |name: &str| name.len() <= 32 && !name.contains(char::is_control);
            known.iter().count() <= 64 && known.iter().all(|(_, name)| is_text(name.as_str()))
        }),
        Answer::Acknowledged { .. } => true,
    }
}

const fn width_of(number: u16) -> Width {
    Width::new(number % 2_048 + 1).expect("1 to 2,048")
}

fn written(welcome: &Welcome) -> Vec<u8> {
    let mode = match welcome.mode {
        Mode::Clock => 0,
        Mode::WaitAll => 1,
        Mode::Quorum => 2,
    };
    let mut out = vec![0x81, VERSION, mode];
    out.extend_from_slice(&welcome.shape.seats.to_be_bytes());
    out.extend_from_slice(&welcome.seat.map_or(u16::MAX, |seat| seat.0).to_be_bytes());
    out.extend_from_slice(&welcome.shape.width.get().to_be_bytes());
    out.extend_from_slice(&welcome.period_nanos.to_be_bytes());
    out.extend_from_slice(&[welcome.input_delay.min(), welcome.input_delay.max()]);
    out.push(welcome.repair);
    out.push(welcome.hash_interval.get());
    out.extend_from_slice(&welcome.match_id.0);
    out
}
