//! The process's limit of open files.

/// Raises the soft limit of open files to the hard limit and returns it. Returns `None` on systems
/// other than Linux, without effect.
///
/// The soft limit is often 1,024, a quarter of
/// [`StreamConfig::connections_max`](crate::StreamConfig::connections_max). A process that serves
/// many connections calls this once at its start.
#[must_use]
pub fn raise_descriptor_limit() -> Option<u64> {
    #[cfg(any(target_os = "android", target_os = "linux"))]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};

        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
            return Some(hard);
        }
        Some(soft)
    }
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    {
        None
    }
}

#[cfg(all(test, any(target_os = "android", target_os = "linux")))]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, getrlimit};

    #[test]
    fn the_limit_that_holds_is_the_highest_there_is() {
        let raised = raise_descriptor_limit().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((soft, soft), (raised, hard));
        assert_eq!(raise_descriptor_limit(), Some(raised), "and stays so");
    }
}
