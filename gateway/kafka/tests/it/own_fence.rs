//! The sender of a commit while its member has no id (`src/own_fence.c`).

#![expect(unsafe_code, reason = "what is tested is C")]

use std::ffi::{CStr, CString, c_char};

// What links it.
use sluice_kafka as _;

/// librdkafka's `rd_kafka_consumer_group_metadata_t`.
#[repr(C)]
struct Sender {
    group: *const c_char,
    generation: i32,
    member: *const c_char,
    instance: *const c_char,
}

unsafe extern "C" {
    fn sluice_name_member(sender: *mut Sender);
}

/// The generation and instance id that are sent.
fn sent(generation: i32, member: &str, instance: Option<&str>) -> (i32, Option<String>) {
    let (group, member) = (CString::new("g").unwrap(), CString::new(member).unwrap());
    let instance = instance.map(|instance| CString::new(instance).unwrap());
    let instance = instance.as_ref().map_or(std::ptr::null(), |instance| instance.as_ptr());
    let mut sender = Sender { group: group.as_ptr(), generation, member: member.as_ptr(), instance };
    // SAFETY: every pointer is of a text that outlives the call, or null where there is none.
    let instance = unsafe {
        sluice_name_member(&raw mut sender);
        (!sender.instance.is_null()).then(|| CStr::from_ptr(sender.instance).to_str().unwrap().to_owned())
    };
    (sender.generation, instance)
}

#[test]
fn a_member_without_an_id_names_no_instance_and_can_commit_nothing() {
    assert_eq!(sent(7, "pod-0-1234", Some("pod-0")), (7, Some("pod-0".to_owned())));
    assert_eq!(sent(7, "", Some("pod-0")), (7, None));
    assert_eq!(
        sent(-1, "", Some("pod-0")),
        (0, None),
        "a group without members stores what has no generation"
    );
    assert_eq!(sent(-1, "", None), (-1, None), "a tool that moves offsets");
}
