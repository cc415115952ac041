//! Refuses system calls to this process, by a real filter.

/// Makes these calls fail with that error, in this process and in its later children.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    // The number of the call is the first word of seccomp_data (seccomp(2)).
    let mut program = vec![step(LOAD_NUMBER, 0, 0)];
    for call in calls {
        program.push(step(SKIP_UNLESS_EQUAL, *call as u32, 1));
        program.push(step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0));
    }
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers; this process runs only its one test.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a live program of that length, for every thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
