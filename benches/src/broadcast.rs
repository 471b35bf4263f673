//! A message to many clients over TCP, compared with bare write loops.

mod clients;
mod floor;

pub use clients::{Call, Clients, Guests};
pub use floor::{PlainLoop, TlsLoop};

use core::time::Duration;

/// Bytes of the message.
pub const MESSAGE_LEN: usize = 100;

/// Bytes of the message's TLS record: header, length prefix of the record inside, kind, content
/// type and tag; RFC 8446, section 5.2.
pub const WIRE_LEN: usize = 5 + 4 + 1 + MESSAGE_LEN + 1 + 16;

/// Returns the CPU time of the threads whose names start with `name`, from Linux's scheduler.
pub fn cpu_time_of_threads(name: &str) -> Duration {
    let nanos = threads(name)
        .filter_map(|path| std::fs::read_to_string(path.join("schedstat")).ok())
        .filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanos)
}

/// Returns the number of this process's threads whose names start with `name`.
pub fn count_threads(name: &str) -> usize {
    threads(name).count()
}

fn threads(name: &str) -> impl Iterator<Item = std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks.filter_map(move |task| {
        let path = task.ok()?.path();
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        comm.starts_with(name).then_some(path)
    })
}
