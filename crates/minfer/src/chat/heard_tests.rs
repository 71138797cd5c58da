//! Systems that templates have no place for.

use super::{ChatError, ChatTemplate, Content, Message, RenderRequest};
use serde_json::json;

/// Drops what is no user's or assistant's.
const DROPS: &str = "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
/// Refuses it, as Gemma 2's does.
const RAISES: &str = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
/// Shows it in the first place alone, trimmed, as Llama 2's does.
const FIRST: &str = "{% if messages[0].role == 'system' %}<<{{ messages[0].content | trim }}>>{% endif %}\
    {% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
/// Fails on everything that has no variable of its own, and drops.
const ASKS: &str = "{% for m in messages %}{% if m.role in own %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";

fn whole(source: &str, talk: &[(&str, &str)]) -> Result<String, ChatError> {
    let template = ChatTemplate::new(source, [], []).unwrap();
    let messages = talk.iter().map(|(role, said)| Message::new(role, said));
    let mut request = RenderRequest::new(messages.collect());
    request
        .extra
        .insert("own".to_owned(), json!(["user", "assistant"]));
    Ok(template.render_whole(request)?.text)
}

#[test]
fn a_system_that_is_not_shown_begins_the_user_s_turn() {
    let talk = [("system", "Be brief."), ("user", "Hi")];
    for source in [DROPS, RAISES, ASKS] {
        assert_eq!(whole(source, &talk).unwrap(), "[user]Be brief.\n\nHi");
    }
    assert_eq!(whole(FIRST, &talk).unwrap(), "<<Be brief.>>[user]Hi");
    // The same words of the user's are no system's.
    let twice = [("system", "Hi"), ("user", "Hi")];
    assert_eq!(whole(ASKS, &twice).unwrap(), "[user]Hi\n\nHi");
}

#[test]
fn each_system_begins_the_turn_behind_it() {
    let talk = [
        ("system", "A"),
        ("system", "B"),
        ("user", "1"),
        ("assistant", "2"),
        ("system", " C "),
        ("user", "3"),
    ];
    for source in [DROPS, RAISES, ASKS] {
        let said = whole(source, &talk).unwrap();
        assert_eq!(said, "[user]A\n\nB\n\n1[assistant]2[user] C \n\n3");
    }
    let said = whole(FIRST, &talk).unwrap();
    assert_eq!(said, "<<A>>[user]B\n\n1[assistant]2[user] C \n\n3");
}

#[test]
fn a_system_that_nobody_could_say_is_refused_by_its_place() {
    for (talk, place) in [
        (vec![("system", "A")], 0),
        (vec![("user", "1"), ("system", "A"), ("system", "B")], 1),
        (vec![("user", "1"), ("system", "A"), ("assistant", "2")], 1),
    ] {
        for source in [DROPS, RAISES, ASKS] {
            match whole(source, &talk) {
                Err(ChatError::Unheard { message }) => assert_eq!(message, place),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Nothing is lost of a system that says nothing.
#[test]
fn an_empty_system_is_no_loss() {
    for source in [DROPS, RAISES, ASKS] {
        let said = whole(source, &[("user", "1"), ("system", " \n")]).unwrap();
        assert!(said.starts_with("[user]1"), "{said}");
        let said = whole(source, &[("system", ""), ("user", "1")]).unwrap();
        assert_eq!(said, "[user]1");
    }
}

#[test]
fn parts_and_tools_stand_behind_the_system() {
    let template = ChatTemplate::new(DROPS, [], []).unwrap();
    let part = |text: &str| json!({"type": "text", "text": text});
    let says = |role: &str, texts: &[&str]| Message {
        role: role.to_owned(),
        content: Some(Content::Parts(texts.iter().map(|t| part(t)).collect())),
        ..Message::default()
    };
    let mut request = RenderRequest::new(vec![
        says("system", &["Be", " brief."]),
        says("user", &["H", "i"]),
    ]);
    let said = template.render_whole(request.clone()).unwrap().text;
    assert_eq!(said, "[user]Be brief.\n\nHi");
    request.tools = Some(json!([{"type": "function", "function": {"name": "now"}}]));
    let said = template.render_whole(request).unwrap().text;
    assert!(said.starts_with("[user]You can call tools."), "{said}");
    assert!(said.ends_with("\n\nBe brief.\n\nHi"), "{said}");
}
