//! A message to many clients over TCP, beside bare loops of writes.

mod crowd;
mod floor;

pub use crowd::{Call, Crowd, Guests};
pub use floor::{PlainLoop, TlsLoop};

use core::time::Duration;

/// Bytes of the message.
pub const MESSAGE_LEN: usize = 100;

/// Bytes of the TLS record that it makes: header, length of the record in it, kind, content type and tag;
/// RFC 8446, section 5.2.
pub const WIRE_LEN: usize = 5 + 4 + 1 + MESSAGE_LEN + 1 + 16;

/// CPU time that the threads have used whose names begin with `name`, as Linux's scheduler tells it.
pub fn cpu_time_of_threads(name: &str) -> Duration {
    let nanos = threads(name)
        .filter_map(|path| std::fs::read_to_string(path.join("schedstat")).ok())
        .filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanos)
}

/// Threads of this process whose names begin with `name`.
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
