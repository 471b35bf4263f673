use super::*;
use crate::peer_addr::SocketId;
use crate::trunk::{self, Frames};

fn peer_addr(socket: u32) -> Destination {
    let peer_addr = PeerAddr {
        socket: SocketId(socket),
        address: "192.0.2.1:1".parse().unwrap(),
    };
    (
        peer_addr,
        Some(IpAddr::from([192, 0, 2, u8::try_from(socket).unwrap()])),
    )
}

fn push_bytes(outbox: &mut Outbox, destination: Destination, datagram: &[u8]) -> bool {
    outbox.try_push(destination, |out| {
        out.extend_from_slice(datagram);
        Ok::<_, ()>(())
    })
}

fn pop(outbox: &mut Outbox, out: &mut Vec<u8>) -> Option<Destination> {
    outbox.pop(out).map(|(destination, _)| destination)
}

#[test]
fn gives_datagrams_in_order_and_is_bounded() {
    let mut outbox = Outbox::new(2 * SPAN_LEN + 3);
    assert!(push_bytes(&mut outbox, peer_addr(1), &[1, 2]));
    let refused: Result<(), ()> = outbox.push(peer_addr(9), |out| {
        out.push(9);
        Err(())
    });
    assert_eq!(refused, Err(()));
    assert!(push_bytes(&mut outbox, peer_addr(2), &[3]));
    assert!(!push_bytes(&mut outbox, peer_addr(3), &[4]));
    let mut out = Vec::new();
    assert_eq!(pop(&mut outbox, &mut out), Some(peer_addr(1)));
    assert_eq!(pop(&mut outbox, &mut out), Some(peer_addr(2)));
    assert_eq!(pop(&mut outbox, &mut out), None);
    assert_eq!(out, [1, 2, 3]);
    assert!(push_bytes(&mut outbox, peer_addr(3), &[4]));
    assert_eq!(pop(&mut outbox, &mut out), Some(peer_addr(3)));
}

#[test]
fn empty_datagrams_take_room_too() {
    let mut outbox = Outbox::new(10 * SPAN_LEN);
    let taken = (0..1_000)
        .filter(|_| push_bytes(&mut outbox, peer_addr(1), &[]))
        .count();
    assert_eq!(taken, 10);
    assert!(outbox.memory() <= 16 * size_of::<Turn>());
}

/// A frame of `len` bytes that contains its number.
fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[0] = 0x81;
    frame
}

fn push(outbox: &mut Outbox, link: u16, packing: Packing, frame: &[u8]) {
    let write = |out: &mut Vec<u8>| -> Result<(), ()> {
        out.extend_from_slice(frame);
        Ok(())
    };
    outbox
        .push_frame(
            (LinkId(link), ShardId::FIRST),
            (peer_addr(link.into()), packing),
            write,
        )
        .unwrap();
}

/// Drains the queue. Returns destination, segment length (if several) and frames of each send.
fn drain(outbox: &mut Outbox) -> Vec<(u32, Option<u16>, Vec<Vec<u8>>)> {
    let mut bursts = Vec::new();
    let mut out = Vec::new();
    while let Some(((peer_addr, _), segment)) = outbox.pop(&mut out) {
        let len = segment.map_or(out.len(), |len| usize::from(len.get()));
        let frames = if out[0] == trunk::KIND {
            assert!(out.len() <= crate::hop::FRAME_MAX);
            Frames::new(&mut out)
                .unwrap()
                .map(|frame| frame.unwrap().to_vec())
                .collect()
        } else {
            out.chunks(len).map(<[u8]>::to_vec).collect()
        };
        bursts.push((peer_addr.socket.0, segment.map(NonZeroU16::get), frames));
        out.clear();
    }
    bursts
}

#[test]
fn mesh_f3_frames_of_one_length_to_one_neighbour_leave_in_one_go() {
    let mut outbox = Outbox::new(1 << 20);
    let mut frames = [Vec::new(), Vec::new()];
    for number in 0..60 {
        let link = u16::from(number % 2);
        let one = frame(number, 148);
        push(&mut outbox, link, Packing::Trunks, &one);
        frames[usize::from(link)].push(one);
    }
    let [first, second] = frames;
    let bursts = [(0, Some(148), first), (1, Some(148), second)];
    assert_eq!(drain(&mut outbox), bursts);
}

#[test]
fn mesh_f3_frames_of_several_lengths_share_a_datagram_if_announced() {
    let mut outbox = Outbox::new(1 << 20);
    let frames: Vec<Vec<u8>> = (0..20)
        .map(|number| frame(number, 60 + 7 * usize::from(number % 5)))
        .collect();
    for frame in &frames {
        push(&mut outbox, 1, Packing::Trunks, frame);
        push(&mut outbox, 2, Packing::Alone, frame);
    }
    let bursts = drain(&mut outbox);
    let of = |wanted: u32| {
        let bursts = bursts.iter().filter(move |(link, ..)| *link == wanted);
        bursts.map(|(_, segment, frames)| (*segment, frames.clone()))
    };
    let all = |wanted| {
        of(wanted)
            .flat_map(|(_, frames)| frames)
            .collect::<Vec<_>>()
    };
    assert_eq!(all(1), frames, "none lost, in order");
    assert_eq!(all(2), frames, "none lost, in order");
    assert_eq!(of(1).count(), 2, "two datagrams of up to 1,280 bytes");
    assert!(of(1).all(|(segment, _)| segment.is_none()));
    // A neighbour without trunk support gets each frame as a datagram.
    assert!(of(2).all(|(segment, frames)| segment.is_some() || frames.len() == 1));
}

#[test]
fn a_run_ends_with_a_shorter_frame_and_holds_what_the_system_takes() {
    let mut outbox = Outbox::new(1 << 20);
    for (number, len) in [(1, 1_200), (2, 1_200), (3, 700), (4, 1_200)] {
        push(&mut outbox, 1, Packing::Trunks, &frame(number, len));
    }
    let counts = |outbox: &mut Outbox| -> Vec<(Option<u16>, usize)> {
        let bursts = drain(outbox).into_iter();
        bursts
            .map(|(_, segment, frames)| (segment, frames.len()))
            .collect()
    };
    assert_eq!(counts(&mut outbox), [(Some(1_200), 3), (None, 1)]);
    for _ in 0..70 {
        push(&mut outbox, 1, Packing::Trunks, &frame(1, 48));
    }
    assert_eq!(counts(&mut outbox), [(Some(48), 64), (Some(48), 6)]);
    for _ in 0..60 {
        push(&mut outbox, 1, Packing::Trunks, &frame(1, 1_280));
    }
    assert_eq!(counts(&mut outbox), [(Some(1_280), 51), (Some(1_280), 9)]);
}

#[test]
fn nothing_waits_for_more_to_come_and_memory_is_bounded() {
    let mut outbox = Outbox::new(64 << 10);
    push(&mut outbox, 1, Packing::Trunks, &frame(1, 100));
    assert_eq!(drain(&mut outbox), [(1, None, vec![frame(1, 100)])]);
    let mut memory = 0;
    for round in 0..50_u16 {
        while !outbox.is_full() {
            // A new neighbour in each round, so that a lane's old entry belongs to another one.
            push(&mut outbox, round, Packing::Trunks, &frame(1, 100));
        }
        drain(&mut outbox);
        if round == 0 {
            memory = outbox.memory();
        }
    }
    let lanes = 64 * size_of::<Option<Lane>>();
    assert!(outbox.memory() <= memory + lanes, "{}", outbox.memory());
    assert!(memory <= 2 * (64 << 10) + lanes, "{memory}");
}

#[test]
fn what_was_taken_makes_room_where_the_queue_is_never_empty() {
    let bytes_max = 100 * (SPAN_LEN + 100);
    let mut outbox = Outbox::new(bytes_max);
    let mut out = Vec::new();
    for _ in 0..10 {
        assert!(push_bytes(&mut outbox, peer_addr(1), &[7; 100]));
    }
    for round in 0..10_000 {
        assert!(push_bytes(&mut outbox, peer_addr(1), &[7; 100]), "{round}");
        out.clear();
        assert_eq!(pop(&mut outbox, &mut out), Some(peer_addr(1)));
        assert_eq!(out, [7; 100]);
    }
    assert!(outbox.memory() < bytes_max);
}
