from homing.cli.main import main

main()
