//! The size of the log on the server is bounded, and acknowledgements free room.

use hub::record::MailVerdict;
use hub::{Completed, MailSeq, StoreConfig, StoreOp};
use wire::ClientId;

use crate::harness::{NatsBackend, Server, append_op, limits};

#[test]
#[ignore = "needs nats-server"]
fn hub_9_a_full_log_keeps_reading_and_acknowledging_and_recovers() {
    let server = Server::start("");
    let mut config = server.config();
    config.bytes_max = 3 * StoreConfig::SEGMENT_BYTES_MIN;
    let mut backend = NatsBackend::open(&config, limits());
    let epoch = backend.join(1);
    let append = |backend: &mut NatsBackend, seq: u64| {
        let op = append_op(epoch, seq, seq % 9, &vec![5; 20_000]);
        match backend.run(op) {
            Ok(Completed::Appended(settled)) => settled[0].verdict,
            other => panic!("{other:?}"),
        }
    };
    let mut seq = 1;
    while append(&mut backend, seq) == MailVerdict::Stored {
        seq += 1;
        while backend.store.tidy() {}
        assert!(seq < 200, "nothing bounds the log");
    }
    let mut waiting = 0;
    for player in 0..9 {
        waiting += backend.read(player).len();
        let op = StoreOp::Ack {
            player: ClientId(player),
            upto: MailSeq(seq - 1),
        };
        assert_eq!(backend.run(op), Ok(Completed::Acked));
    }
    assert_eq!(waiting as u64, seq - 1, "all is read");
    while backend.store.tidy() {}
    assert_eq!(append(&mut backend, seq), MailVerdict::Stored);
    drop(backend);
    let mut backend = NatsBackend::open(&config, limits());
    let left: usize = (0..9).map(|player| backend.read(player).len()).sum();
    assert_eq!(left, 1);
}
