from kbpf.errors import CommandFailed


def test_a_failed_command_tells_command_status_and_its_own_words_in_one_line():
    failed = CommandFailed("iptables-restore", 4, "line 3 failed\nTry again\n")
    assert str(failed) == "iptables-restore: exit status 4: line 3 failed Try again"


def test_a_silent_failure_says_that_there_was_no_message():
    assert str(CommandFailed("ip", 1, "")) == "ip: exit status 1: no message"
