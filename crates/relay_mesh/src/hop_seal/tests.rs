use super::*;
use crate::hop::Piece;
use crate::hop_seal::HopOpener;
use crypto::{Exporter, Initial, OpenError, Role, Secret32};
use netsim::provider::{NonceLog, Recording, SimProvider};
use wire::Seed;

const WHOLE: Phase = Phase {
    key: 0,
    piece: Piece::Whole,
};

const PAIR: ShardPair = ShardPair {
    from: ShardId(2),
    to: ShardId(5),
};

struct Harness {
    provider: Recording<SimProvider>,
    log: NonceLog,
    sealer: HopSealer<<Recording<SimProvider> as Provider>::Aead>,
    opener: HopOpener<<Recording<SimProvider> as Provider>::Aead>,
}

fn exporter<P: Provider>(provider: &P) -> Exporter {
    let agreed = Initial::new(provider, None).agree(provider, &Secret32::new([3; 32]));
    agreed.traffic(provider, &[0; 32]).split(Role::Dialler).2
}

impl Harness {
    fn new() -> Self {
        let log = NonceLog::default();
        let provider = Recording::new(SimProvider::new(Seed::from_number(1)), &log);
        let secret = LinkSecret::new(&provider, &exporter(&provider), 0);
        Self {
            sealer: HopSealer::new(&provider, &secret, PAIR, 1),
            opener: HopOpener::new(&provider, &secret, PAIR),
            provider,
            log,
        }
    }

    fn seal(
        &mut self,
        at: u64,
        binding: &mut Binding,
        number: u64,
    ) -> Result<Vec<u8>, SealRefused> {
        let mut out = Vec::new();
        let packet = Packet {
            number,
            phase: WHOLE,
            hops_left: 3,
            body: &[9; 40],
        };
        let now = Instant::from_millis(at);
        self.sealer
            .seal(&self.provider, now, (binding, packet), &mut out)?;
        Ok(out)
    }

    fn bind_origin(&mut self, name: LabelName) -> Result<Binding, BindError> {
        self.sealer
            .bind_origin(&self.provider, Instant::ZERO, name.into())
    }

    fn bind_transit(&mut self, name: LabelName) -> Result<Binding, BindError> {
        self.sealer
            .bind_transit(&self.provider, Instant::ZERO, name.into())
    }

    fn open(&mut self, at: u64, mut frame: Vec<u8>) -> bool {
        let header = HopHeader::decode(&frame).unwrap();
        let now = Instant::from_millis(at);
        match self.opener.open(&self.provider, now, &header, &mut frame) {
            Ok(body) => body == [9; 40],
            Err(OpenError) => false,
        }
    }
}

const fn name(slot: u32) -> LabelName {
    LabelName {
        slot,
        generation: 0,
    }
}

#[test]
fn mesh_a5_a_label_is_bound_once_in_a_key_epoch() {
    let mut harness = Harness::new();
    let mut first = harness.bind_origin(name(1)).unwrap();
    assert_eq!(
        harness.bind_transit(name(1)).unwrap_err(),
        BindError::LabelTaken
    );
    harness.seal(0, &mut first, 0).unwrap();
    harness.sealer.release(first);
    assert_eq!(
        harness.bind_origin(name(1)).unwrap_err(),
        BindError::LabelTaken
    );
    let unused = harness.bind_origin(name(2)).unwrap();
    harness.sealer.release(unused);
    assert!(harness.bind_origin(name(2)).is_ok(), "nothing was sealed");
}

#[test]
fn mesh_a5_an_origin_increases_and_a_relay_accepts_each_number_once() {
    let mut harness = Harness::new();
    let mut origin = harness.bind_origin(name(1)).unwrap();
    let mut transit = harness.bind_transit(name(2)).unwrap();
    for (number, origin_takes, transit_takes) in [
        (5, true, true),
        (5, false, false),
        (4, false, true),
        (4, false, false),
        (2_000, true, true),
        (6, false, false),
    ] {
        let sealed = harness.seal(0, &mut origin, number);
        assert_eq!(sealed.is_ok(), origin_takes, "{number}");
        let sealed = harness.seal(0, &mut transit, number);
        assert_eq!(sealed.is_ok(), transit_takes, "{number}");
    }
    assert_eq!(harness.log.reuses(), []);
    assert_eq!(harness.log.sealed(), 5);
}

#[test]
fn mesh_a5_a_binding_of_another_link_seals_nothing() {
    let mut harness = Harness::new();
    let other = LinkSecret::new(&harness.provider, &exporter(&harness.provider), 1);
    let mut foreign = HopSealer::new(&harness.provider, &other, PAIR, 2);
    let mut binding = foreign
        .bind_origin(&harness.provider, Instant::ZERO, name(1).into())
        .unwrap();
    assert_eq!(
        harness.seal(0, &mut binding, 0).unwrap_err(),
        SealRefused::Foreign
    );
    assert_eq!(harness.log.sealed(), 0);
}

#[test]
fn mesh_a5_keys_advance_by_time_and_count_and_no_frame_is_lost() {
    let mut harness = Harness::new();
    let mut live = harness.bind_origin(name(1)).unwrap();
    let mut gone = harness.bind_origin(name(2)).unwrap();
    harness.seal(0, &mut gone, 0).unwrap();
    harness.sealer.release(gone);
    let late = harness.seal(0, &mut live, 0).unwrap();
    for epoch in 1..=9_u64 {
        let at = epoch * 120_000;
        let frame = harness.seal(at, &mut live, epoch).unwrap();
        assert_eq!(u64::from(frame[1] & 3), epoch % 4);
        assert!(harness.open(at, frame), "{epoch}");
        if epoch == 1 {
            assert!(
                harness.open(at + 10, late.clone()),
                "reordered over the change"
            );
        }
    }
    assert_eq!(
        harness.bind_origin(name(1)).unwrap_err(),
        BindError::LabelTaken,
        "live ones are carried over"
    );
    assert!(harness.bind_origin(name(2)).is_ok(), "released before");

    harness.sealer.sealed = EPOCH_FRAMES;
    let frame = harness.seal(1_080_001, &mut live, 100).unwrap();
    assert_eq!(frame[1] & 3, 2);
    assert!(harness.open(1_080_001, frame));
    assert_eq!(harness.log.reuses(), []);
}

#[test]
fn mesh_a1_every_flipped_bit_is_refused() {
    let mut harness = Harness::new();
    let mut binding = harness.bind_origin(name(1)).unwrap();
    let frame = harness.seal(0, &mut binding, 7).unwrap();
    for bit in 0..frame.len() * 8 {
        let mut forged = frame.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        if HopHeader::decode(&forged).is_ok() {
            assert!(!harness.open(0, forged), "{bit}");
        }
    }
    assert!(harness.open(0, frame));
}

#[test]
fn bindings_are_bounded() {
    let mut harness = Harness::new();
    let bound = u32::try_from(BOUND_MAX).unwrap();
    let held: Vec<Binding> = (0..bound)
        .map(|slot| harness.bind_origin(name(slot)).unwrap())
        .collect();
    assert_eq!(
        harness.bind_origin(name(bound)).unwrap_err(),
        BindError::Full
    );
    drop(held);
}

#[test]
fn mesh_a1_labels_given_back_do_not_keep_others_out_for_an_epoch() {
    let mut harness = Harness::new();
    let quarter = u32::try_from(BOUND_MAX / 4).unwrap();
    for slot in 0..quarter {
        let mut binding = harness.bind_origin(name(slot)).unwrap();
        harness.seal(0, &mut binding, 0).unwrap();
        harness.sealer.release(binding);
    }
    assert_eq!(
        (harness.sealer.bound.len(), harness.sealer.live()),
        (BOUND_MAX / 4, 0)
    );
    let mut live = harness.bind_origin(name(quarter)).unwrap();
    let early = harness.seal(9_999, &mut live, 0).unwrap();
    assert_eq!(early[1] & 3, 0);
    let frame = harness.seal(10_000, &mut live, 1).unwrap();
    assert_eq!(frame[1] & 3, 1, "another key");
    assert_eq!((harness.sealer.bound.len(), harness.sealer.live()), (1, 1));
    assert!(harness.open(9_999, early) && harness.open(10_000, frame));
    assert!(harness.bind_origin(name(0)).is_ok());
}

#[test]
fn mesh_a5_shards_of_a_label_share_no_nonce_and_open_no_others_frames() {
    let mut harness = Harness::new();
    let secret = LinkSecret::new(&harness.provider, &exporter(&harness.provider), 0);
    let pairs = (0..ShardId::COUNT_MAX).flat_map(|from| {
        let to = 0..ShardId::COUNT_MAX;
        to.map(move |to| ShardPair {
            from: ShardId(from),
            to: ShardId(to),
        })
    });
    for (serial, pair) in (2..).zip(pairs.filter(|pair| *pair != PAIR)) {
        let mut sealer = HopSealer::new(&harness.provider, &secret, pair, serial);
        let mut binding = sealer
            .bind_transit(&harness.provider, Instant::ZERO, name(1).into())
            .unwrap();
        let packet = Packet {
            number: 1,
            phase: WHOLE,
            hops_left: 3,
            body: &[9; 40],
        };
        let mut frame = Vec::new();
        let sealed = sealer.seal(
            &harness.provider,
            Instant::ZERO,
            (&mut binding, packet),
            &mut frame,
        );
        assert_eq!(sealed, Ok(()));
        assert_eq!(HopHeader::decode(&frame).unwrap().from, pair.from);
        assert!(!harness.open(0, frame), "{pair:?}");
    }
    let mut own = harness.bind_transit(name(1)).unwrap();
    let frame = harness.seal(0, &mut own, 1).unwrap();
    assert!(harness.open(0, frame));
    assert_eq!(harness.log.sealed(), 64);
    assert_eq!(harness.log.reuses(), []);
}
