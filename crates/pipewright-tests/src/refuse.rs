//! Refuses system calls to this process, by a real filter.

/// Makes these calls fail with that error, in this process and in its later children.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    let mut program = vec![LOAD_NUMBER];
    for call in calls {
        program.push(skip_unless_equal(*call as u32, 1));
        program.push(fail_with(errno));
    }
    install(program);
}

/// Makes a call fail with `EINVAL` if the argument of that index is not zero, as a kernel does that knows no flag.
pub fn refuse_flags(call: libc::c_long, argument: u32) {
    // The low half of an argument comes first on a little-endian processor; all that run this are.
    let low_half = 16 + 8 * argument;
    install(vec![
        LOAD_NUMBER,
        skip_unless_equal(call as u32, 3),
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, low_half, 0),
        // If it is zero, skip the failure.
        libc::sock_filter { jt: 1, ..skip_unless_equal(0, 0) },
        fail_with(libc::EINVAL),
    ]);
}

/// Loads the number of the call, which is the first word of seccomp_data (seccomp(2)).
const LOAD_NUMBER: libc::sock_filter =
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);

const fn instruction(code: u32, k: u32, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf, k }
}

const fn skip_unless_equal(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skipped)
}

const fn fail_with(errno: i32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0)
}

/// Filters the calls of this process. The filter allows what its program does not refuse.
fn install(mut program: Vec<libc::sock_filter>) {
    program.push(instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
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
